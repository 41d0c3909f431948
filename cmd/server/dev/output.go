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

// prefixed returns a writer that keeps each line in a file, and shows it with name before it if a user needs it. Errors
// that are logged during start are shown only if it fails, or the process ends meanwhile.
func (o *output) prefixed(name, file string, start *start) *lines {
	return &lines{out: o, name: name, start: start, keep: logFile{name: file, most: mostLog}}
}

// lines collects what is written until a line is complete. Only one goroutine may write at a time.
type lines struct {
	out     *output
	name    string
	partial []byte
	keep    logFile
	sieve   sieve
	start   *start
	back    [][]byte // what is held back, at most mostBack lines
	// lost: it was said that the file cannot be written. All lines are shown then.
	lost bool
}

// locked has any number of goroutines write lines.
type locked struct {
	mu    sync.Mutex
	lines *lines
}

// Write implements io.Writer.
func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// mostBack is how many lines are held back. Later ones are in the file only.
const mostBack = 100

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

// flush writes a last line that has no end of line, and closes the file. The process has ended.
func (l *lines) flush() {
	if len(l.partial) > 0 {
		l.emit(l.partial)
		l.partial = nil
	}
	l.release(l.start.goesOn())
	_ = l.keep.close() // each line was written when it came
}

func (l *lines) emit(line []byte) {
	if err := l.keep.writeLine(line); err != nil && !l.lost {
		l.lost = true
		l.out.say("The log of %s is shown here, as its file cannot be written: %v", l.name, err)
	}
	goesOn := l.start.goesOn()
	if !goesOn {
		l.release(l.start.failed())
	}
	passes := l.sieve.passes(line)
	switch {
	case l.out.all || l.lost || passes && !(goesOn && l.sieve.logged):
		l.show(line)
	case passes && len(l.back) < mostBack:
		l.back = append(l.back, bytes.Clone(line))
	}
}

// release shows or drops what is held back.
func (l *lines) release(shown bool) {
	for _, line := range l.back {
		if shown {
			l.show(line)
		}
	}
	l.back = nil
}

func (l *lines) show(line []byte) { l.out.line(l.name, "36", string(line)) }
