package backups

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Inspected is what a directory has.
type Inspected struct {
	Shard  string `json:"shard"`
	Bases  int    `json:"bases"`
	Frames int    `json:"frames"`
	Bytes  int64  `json:"bytes"`
	// Spans are the times that can be gone back to.
	Spans []Span `json:"spans"`
}

// Last returns the last time that can be gone back to. Zero: there is none.
func (i *Inspected) Last() time.Time {
	if len(i.Spans) == 0 {
		return time.Time{}
	}
	return i.Spans[len(i.Spans)-1].To
}

// Inspect says what a directory has. With verify it reads all frames, and compares them with their sums.
func Inspect(directory string, verify bool) (*Inspected, error) {
	all, err := readContents(directory)
	if err != nil {
		return nil, err
	}
	if verify {
		for _, f := range slices.Concat(all.bases, all.changes) {
			if err := f.verify(); err != nil {
				return nil, err
			}
		}
	}
	return all.inspect(), nil
}

func (c *contents) inspect() *Inspected {
	out := &Inspected{Shard: c.shard, Bases: len(c.bases), Spans: c.spans()}
	for _, f := range slices.Concat(c.bases, c.changes) {
		out.Frames += len(f.frames)
		for _, frame := range f.frames {
			out.Bytes += frame.Bytes
		}
	}
	return out
}

func (f *file) verify() (err error) {
	opened, err := os.Open(f.name)
	if err != nil {
		return fmt.Errorf("open a file of the backup: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	for _, frame := range f.frames {
		if err := frame.Verify(opened); err != nil {
			return fmt.Errorf("%s: %w: remove the file, and what it has is lost", f.name, err)
		}
	}
	return nil
}
