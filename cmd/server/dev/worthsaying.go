package dev

import (
	"bytes"
	"regexp"
)

// klogLine matches the beginning of a line that klog writes as text, and jsonLine that of one as JSON. The first group
// is the severity.
var (
	klogLine = regexp.MustCompile(`^([IWEF])\d{4} \d\d:`)
	jsonLine = []byte(`{"ts":`)
	// jsonInfo is in JSON lines that are no errors.
	jsonInfo = []byte(`,"v":`)
)

// worthSaying are the beginnings of messages without a fault that a first-time user needs: why a term ended and the
// next one began, and what becomes of controllers. That a replica leads, dev says itself.
var worthSaying = [][]byte{
	[]byte(`"The term has ended"`),
	[]byte(`"The leader's process is `),
	[]byte(`"Waiting although the leader's process is `),
	[]byte(`"Cleared the holder"`),
	[]byte(`"Controller is `),
	[]byte(`"Controller has recovered`),
	[]byte(`"Late controllers have returned"`),
	[]byte(`"The late work has stopped`),
	[]byte(`"Still waiting, before controllers can run"`),
	[]byte(`"A member of etcd serves again"`),
	[]byte(`"Requests are refused with 429`),
	[]byte(`"Standing by: `),
}

// startsSo are errors that each start of an installation brings, until its shards have heard of each other. The log
// files have them.
var startsSo = [][]byte{
	[]byte(`this shard does not know the members of its installation yet`),
	[]byte(`is no member of the installation, as far as this shard knows`),
}

// sieve lets those lines of one child's log through that a first-time user needs: warnings and errors with all their
// lines (but for startsSo), what is no log, such as a panic, and what is worthSaying. It is for one goroutine at a
// time.
type sieve struct{ through bool }

// passes reports whether a line is let through. It must see all lines, in their order.
func (s *sieve) passes(line []byte) bool {
	switch match := klogLine.FindSubmatch(line); {
	case match != nil:
		s.through = match[1][0] != 'I' && !has(line, startsSo) || has(line, worthSaying)
	case bytes.HasPrefix(line, jsonLine):
		s.through = !bytes.Contains(line, jsonInfo) && !has(line, startsSo) || has(line, worthSaying)
	case len(line) == 0 || line[0] != '\t' && line[0] != ' ': // not one more line of what is before it
		s.through = true
	}
	return s.through
}

func has(line []byte, some [][]byte) bool {
	for _, part := range some {
		if bytes.Contains(line, part) {
			return true
		}
	}
	return false
}
