package dev

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/regent-project/regent/cmd/server/face/view"
)

// output is the terminal, or the writer in its place. All replicas share it, line by line.
type output struct {
	// colour: the terminal shows colours. all: every line of the replicas' logs is shown, not only what a sieve
	// lets through.
	colour, all bool
	// waits is where it is told what is waited for, if it is a terminal.
	waits io.Writer

	mu      sync.Mutex
	to      io.Writer
	waiting bool
}

// while calls do, and tells what is waited for. Lines that are said meanwhile take the place of what was told, which
// comes again below them.
func (o *output) while(ctx context.Context, what string, do func(context.Context) error) error {
	o.wait(true)
	defer o.wait(false)
	return view.While(ctx, o.waits, what, do)
}

func (o *output) wait(waiting bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = waiting
}

// say writes a line of dev's own, with the prefix "dev".
func (o *output) say(format string, args ...any) {
	o.line("dev", "1", fmt.Sprintf(format, args...))
}

// line writes one line. The prefix has a colour if the terminal shows colours.
func (o *output) line(prefix, colour, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.colour {
		prefix = "\x1b[" + colour + "m" + prefix + "\x1b[0m"
	}
	if o.colour && o.waiting {
		prefix = view.ClearLine + prefix
	}
	_, _ = fmt.Fprintf(o.to, "%s | %s\n", prefix, text)
}

// block writes text without prefixes, so that it can be copied from the terminal.
func (o *output) block(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = io.WriteString(o.to, text)
}

// prefixed returns a writer that keeps each line in a file, passes it to see, and shows it with name before it if a
// user needs it.
func (o *output) prefixed(name, file string, see func(line []byte)) *lines {
	return &lines{out: o, name: name, see: see, keep: logFile{name: file, most: mostLog}}
}

// lines collects what is written until a line is complete. Only one goroutine may write at a time.
type lines struct {
	out     *output
	name    string
	see     func([]byte)
	partial []byte
	keep    logFile
	sieve   sieve
	// lost: it was said that the file cannot be written. All lines are shown then.
	lost bool
}

func (l *lines) Write(p []byte) (int, error) {
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte{'\n'})
		if !found {
			return len(p), nil
		}
		l.emit(line)
		l.partial = append([]byte(nil), rest...)
	}
}

// flush writes a last line that has no end of line, and closes the file.
func (l *lines) flush() {
	if len(l.partial) > 0 {
		l.emit(l.partial)
		l.partial = nil
	}
	_ = l.keep.close() // each line was written when it came
}

func (l *lines) emit(line []byte) {
	if err := l.keep.writeLine(line); err != nil && !l.lost {
		l.lost = true
		l.out.say("The log of %s is shown here, as its file cannot be written: %v", l.name, err)
	}
	if l.sieve.passes(line) || l.out.all || l.lost {
		l.out.line(l.name, "36", string(line))
	}
	l.see(line)
}
