package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/regent-project/regent/cmd/server/face/view"
)

// output is one look: what to print, what of it counts as a change, and the error for the exit code.
type output struct {
	print   func(io.Writer, view.Look) error
	facts   []view.Fact
	verdict error
}

// show prints one look, or one after the other with --watch, until the user ends it.
func (f *observerFlags) show(cmd *cobra.Command, see func(context.Context) (output, error)) error {
	if !f.watch {
		one, err := see(cmd.Context())
		if err != nil {
			return err
		}
		if err := one.print(cmd.OutOrStdout(), f.look(cmd)); err != nil {
			return err
		}
		return one.verdict
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	w := &watcher{flags: f, cmd: cmd}
	for {
		one, err := see(ctx)
		if ctx.Err() != nil {
			return w.verdict
		}
		if err := w.next(one, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return w.verdict
		case <-tick.C:
		}
	}
}

// untilInterrupt returns a context that ends at SIGINT or SIGTERM.
func untilInterrupt(parent context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
}

// watcher prints one look after the other.
type watcher struct {
	flags   *observerFlags
	cmd     *cobra.Command
	facts   []view.Fact
	begun   bool
	silent  bool
	verdict error
}

// clearScreen moves to the first line of a terminal, and erases what is below.
const clearScreen = "\x1b[H\x1b[J"

func (w *watcher) next(one output, fault error) error {
	look, out := w.flags.look(w.cmd), w.cmd.OutOrStdout()
	if fault != nil {
		if !w.begun {
			return fault
		}
		if !w.silent {
			w.silent = true
			_, _ = fmt.Fprintf(w.cmd.ErrOrStderr(), "regent: %v\n", fault)
		}
		return nil
	}
	defer func() { w.facts, w.verdict, w.begun, w.silent = one.facts, one.verdict, true, false }()
	if isTerminal(out) {
		var text bytes.Buffer
		text.WriteString(clearScreen)
		if err := one.print(&text, look); err != nil {
			return err
		}
		_, err := out.Write(text.Bytes())
		return err
	}
	changes := view.Changes(look.Now, w.facts, one.facts)
	if !look.IsFor() {
		if len(changes) == 0 && w.begun {
			return nil
		}
		return one.print(out, look)
	}
	for _, line := range changes {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// widthOf returns how many columns a terminal has; 0: it is none, or does not say.
func widthOf(w any) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
