// Package format says in which format a shard stores what it stores, and which versions of Regent read that (invariant
// I15). A format is a number in the shard's record in etcd. It is raised when something is stored that older versions
// would misread. What they would only ignore raises nothing.
package format

import (
	"errors"
	"fmt"
)

// Format is the format of all that a shard has in etcd.
type Format int

// first is the format of version 0.1.0. Records from before that version name no format, and are in this one.
const first Format = 1

// BuiltIn is that of version 0.3.0: logical clusters may have built-in objects (see clusters.BuiltIn). Older versions
// would find their namespaces missing, and make others.
const BuiltIn Format = 2

// OrFirst returns the format, or that of a record which names none.
func (f Format) OrFirst() Format {
	if f == 0 {
		return first
	}
	return f
}

// Formats are what a version reads: all from Oldest to Newest. It begins an empty shard in Newest.
type Formats struct {
	// Version is what errors call it.
	Version        string
	Oldest, Newest Format
	// Since is the oldest version that reads Newest, and Until the newest version that reads what is before Oldest;
	// empty: nothing is.
	Since, Until string
}

// Ours returns what this version reads.
func Ours(version string) Formats {
	return Formats{Version: version, Oldest: first, Newest: BuiltIn, Since: "v0.3.0"}
}

// Record is what the shard's record says of its format. Its names in JSON and their meaning never change, so that every
// version can tell why it does not read a shard.
type Record struct {
	Format Format `json:"format,omitempty"`
	// ReadableFrom is the oldest version that reads the format. It is for people.
	ReadableFrom string `json:"readable-from,omitempty"`
}

// New returns the record of a shard that has nothing stored yet.
func (f Formats) New() Record { return Record{Format: f.Newest, ReadableFrom: f.Since} }

// ErrUnreadable is of a shard in a format that this version does not read. Trying again does not help.
var ErrUnreadable = errors.New("this version does not read what the shard has stored")

// Check returns nil if this version reads the shard with that record, and otherwise an error that wraps ErrUnreadable
// and says which versions read it.
func (f Formats) Check(r Record) error {
	format := r.Format.OrFirst()
	reads := fmt.Sprintf("format %d", f.Oldest)
	if f.Newest > f.Oldest {
		reads = fmt.Sprintf("formats %d to %d", f.Oldest, f.Newest)
	}
	switch {
	case format > f.Newest:
		return fmt.Errorf("%w: it is in format %d, which %s; this is %s, which reads %s: start one of those versions, or restore a backup from before the upgrade",
			ErrUnreadable, format, readers(r.ReadableFrom), f.Version, reads)
	case format < f.Oldest:
		return fmt.Errorf("%w: it is in format %d, which versions up to %s read; this is %s, which reads %s: upgrade the shard to %s first, and from there to this one",
			ErrUnreadable, format, f.Until, f.Version, reads, f.Until)
	}
	return nil
}

func readers(from string) string {
	if from == "" {
		return "newer versions read"
	}
	return "versions from " + from + " on read"
}
