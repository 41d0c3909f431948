// Package history judges what etcd's own history says of a shard's terms: not what clients were told, and not what
// replicas believed.
//
// Every write of the scenarios' writer tells its term, in the object or in its name, and the Lease's own history says
// when each term began and ended. So a write that committed outside of its term shows, whoever made it.
package history

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/regent-project/regent/pkg/election/fence"
)

// The keys of a ConfigMap's data that tell which term wrote it, and what a register holds.
const (
	TermKey  = "term"
	ValueKey = "value"
)

// FirstWrite is the ConfigMap that a term's first write goes to, if that is all there is to see of a term. PIDKey tells
// which process made it, beside TermKey.
const (
	FirstWrite = "first-write"
	PIDKey     = "pid"
)

// TermOf names a term, short enough for an object's name. A holder identity ends with a part of a uuid. It is used
// twice only for terms of different ranges, or of different epochs.
func TermOf(token fence.Token) string {
	return fmt.Sprintf("%d.%s", token.Epoch, token.Holder[max(0, len(token.Holder)-12):]) + RangeOf(token.Name)
}

var rangeLease = regexp.MustCompile(`-(\d+)$`)

// RangeOf tells the range that a Lease is of, as the names of its terms, registers and objects end: .r3, or nothing if
// it is not of one of several.
func RangeOf(lease string) string {
	if parts := rangeLease.FindStringSubmatch(lease); parts != nil {
		return ".r" + parts[1]
	}
	return ""
}

// LeaseOfTerm is the Lease under which a term leads, in the election of a Lease. A register's name ends as its writers'
// terms do.
func LeaseOfTerm(election, term string) string {
	if _, of, ok := strings.Cut(term, ".r"); ok {
		return election + "-" + of
	}
	return election
}

// OwnName is the name of an object that only one term creates and deletes.
func OwnName(token fence.Token, suffix string) string {
	return "own-" + strings.ReplaceAll(TermOf(token), ".", "-") + "-" + suffix
}

var ownKey = regexp.MustCompile(`/own-(\d+)-([^-]+)(?:-(r\d+))?-[^/]*$`)

// ownerOf is the term of an own object, by its key; empty for others.
func ownerOf(key string) string {
	if parts := ownKey.FindStringSubmatch(key); parts != nil {
		return strings.TrimSuffix(strings.Join(parts[1:], "."), ".")
	}
	return ""
}
