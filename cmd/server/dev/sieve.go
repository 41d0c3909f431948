package dev

import (
	"bytes"
	"regexp"
	"sync/atomic"
	"time"
)

// klogLine matches the beginning of a line that klog writes as text, and jsonLine that of one as JSON. The first group
// is the severity.
var (
	klogLine = regexp.MustCompile(`^([IWEF])\d{4} \d\d:`)
	jsonLine = []byte(`{"ts":`)
	// jsonInfo is in JSON lines that are no errors.
	jsonInfo = []byte(`,"v":`)
)

// sieve lets those lines of one child's log through that a first-time user needs: warnings and errors with all their
// lines, and what is no log, such as a panic. It goes by severity and never by wording: what the replicas can say
// themselves, they are asked (follow, watch). It is for one goroutine at a time.
type sieve struct {
	through bool
	logged  bool // the line belongs to a log, and is nothing that the process has written otherwise
}

// passes reports whether a line is let through. It must see all lines, in their order.
func (s *sieve) passes(line []byte) bool {
	switch match := klogLine.FindSubmatch(line); {
	case match != nil:
		s.through, s.logged = match[1][0] != 'I', true
	case bytes.HasPrefix(line, jsonLine):
		s.through, s.logged = !bytes.Contains(line, jsonInfo), true
	case len(line) == 0 || line[0] != '\t' && line[0] != ' ': // not one more line of what is before it
		s.through, s.logged = true, false
	}
	return s.through
}

// start is that of an installation. Until its shards have heard of each other, they refuse each other, and log that as
// errors. A user needs these only if the start fails.
type start struct {
	until time.Time
	up    atomic.Bool
}

// startPatience is how long errors of a start are held back.
const startPatience = 20 * time.Second

// goesOn reports whether errors may go away by themselves. A nil start is over.
func (s *start) goesOn() bool { return s != nil && !s.up.Load() && time.Now().Before(s.until) }

// failed reports whether the start has taken too long.
func (s *start) failed() bool { return s != nil && !s.up.Load() && !s.goesOn() }
