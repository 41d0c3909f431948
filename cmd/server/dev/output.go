package dev

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// output is the terminal, or the writer in its place. All replicas share it, line by line.
type output struct {
	colour bool

	mu sync.Mutex
	to io.Writer
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
	_, _ = fmt.Fprintf(o.to, "%s | %s\n", prefix, text)
}

// block writes text without prefixes, so that it can be copied from the terminal.
func (o *output) block(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = io.WriteString(o.to, text)
}

// prefixed returns a writer that puts name before each line. It also passes each line to see.
func (o *output) prefixed(name string, see func(line []byte)) *lines {
	return &lines{out: o, name: name, see: see}
}

// lines collects what is written until a line is complete. Only one goroutine may write at a time.
type lines struct {
	out     *output
	name    string
	see     func([]byte)
	partial []byte
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

// flush writes a last line that has no end of line.
func (l *lines) flush() {
	if len(l.partial) > 0 {
		l.emit(l.partial)
		l.partial = nil
	}
}

func (l *lines) emit(line []byte) {
	l.out.line(l.name, "36", string(line))
	l.see(line)
}
