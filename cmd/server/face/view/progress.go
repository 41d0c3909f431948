package view

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// patience is how long something may take before anything is said.
	patience = 2 * time.Second
	// beat is how often the line is rewritten.
	beat = time.Second
	// narrow is how wide a terminal is that does not say it.
	narrow = 80

	// ClearLine moves to the beginning of a terminal's line and erases it.
	ClearLine = "\r\x1b[2K"
)

// Clear erases the line of While before something else is written to the same terminal, if w is one.
func Clear(w io.Writer) {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		_, _ = io.WriteString(w, ClearLine) // an error means that nobody looks
	}
}

// While calls do, and returns what it returns. If do takes longer than two seconds and w is a terminal, a line on w
// says what is waited for, and for how long, until do has returned: then the line is erased. What do writes to the same
// terminal must begin with ClearLine, and end with the end of a line.
func While(ctx context.Context, w io.Writer, what string, do func(context.Context) error) error {
	return WhileTelling(ctx, w, func() string { return what }, do)
}

// WhileTelling is While with a text that changes. what is called on another goroutine than do.
func WhileTelling(ctx context.Context, w io.Writer, what func() string, do func(context.Context) error) error {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return do(ctx)
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width < 1 {
		width = narrow
	}
	return while(ctx, w, width, what, do)
}

func while(ctx context.Context, w io.Writer, width int, what func() string, do func(context.Context) error) error {
	done, erased := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(erased)
		rewrite(w, width, what, done)
	}()
	defer func() { // also if do panics
		close(done)
		<-erased
	}()
	return do(ctx)
}

// rewrite writes the line until done is closed, and erases it.
func rewrite(w io.Writer, width int, what func() string, done <-chan struct{}) {
	began, next := time.Now(), time.NewTimer(patience)
	defer next.Stop()
	visible := false
	for {
		select {
		case <-done:
			if visible {
				_, _ = io.WriteString(w, ClearLine)
			}
			return
		case <-next.C:
			// An error means that nobody looks.
			_, _ = io.WriteString(w, ClearLine+waitingLine(what(), time.Since(began), width))
			visible = true
			next.Reset(beat)
		}
	}
}

// waitingLine returns the text, so short that the terminal does not wrap it: a wrapped line could not be erased.
func waitingLine(what string, waited time.Duration, width int) string {
	after := fmt.Sprintf("... %s", waited.Round(time.Second))
	after = after[:min(len(after), width-1)]
	room := width - 1 - len(after)
	if utf8.RuneCountInString(what) > room {
		what = string([]rune(what)[:room])
	}
	return what + after
}
