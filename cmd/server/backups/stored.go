package backups

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regent-project/regent/cmd/server/backups/s3"
	"github.com/regent-project/regent/pkg/server/backup"
)

// Store is where a copy of a directory is. A file of the directory is an object of its name, or objects that have parts
// of it one after the other (PREFIX/<file>.parts/<offset>), because an object cannot be appended to; or both: then the
// parts continue the object.
type Store interface {
	fmt.Stringer
	List(ctx context.Context) ([]s3.Object, error)
	Put(ctx context.Context, name string, from *io.SectionReader) error
	// Get writes the first bytes of an object, and fails if it has fewer.
	Get(ctx context.Context, name string, bytes int64, to io.Writer) error
	Delete(ctx context.Context, names []string) error
}

const (
	parts = ".parts/"
	// partsMost is how many parts a file has before all of it is put as one object.
	partsMost = 1000
	// partMost bounds a part.
	partMost = 16 << 20
)

// storedName matches the names of objects that are written here, and no other name of a store becomes a file's.
var storedName = regexp.MustCompile(`^((?:base|changes)-[0-9]{20}\.frames)(?:\.parts/([0-9]{16}))?$`)

func partName(file string, from int64) string { return fmt.Sprintf("%s%s%016d", file, parts, from) }

func isBase(file string) bool { return strings.HasPrefix(file, string(backup.Base)+"-") }

// piece is a range of a file.
type piece struct{ from, bytes int64 }

func (p piece) to() int64 { return p.from + p.bytes }

// copies are the objects that a store has of a file.
type copies struct {
	whole int64   // how much of the file the object of its name has; 0: there is none
	parts []piece // by offset
}

// read returns how much of the file can be read without a gap, and the parts that are needed for that.
func (c *copies) read() (end int64, needed []piece) {
	end = c.whole
	for _, p := range c.parts {
		if p.from <= end && p.to() > end {
			end, needed = p.to(), append(needed, p)
		}
	}
	return end, needed
}

// gap returns what is missing before a part. No bytes: nothing is.
func (c *copies) gap() piece {
	end, _ := c.read()
	for _, p := range c.parts {
		if p.from > end {
			return piece{end, p.from - end}
		}
	}
	return piece{}
}

// objects returns the names of all objects of a file, or of those only that its whole object makes superfluous.
func (c *copies) objects(file string, superfluous bool) (names []string) {
	if c.whole > 0 && !superfluous {
		names = append(names, file)
	}
	for _, p := range c.parts {
		if !superfluous || p.to() <= c.whole {
			names = append(names, partName(file, p.from))
		}
	}
	return names
}

// add learns of an object.
func (c *copies) add(p piece, whole bool) {
	if whole {
		c.whole = p.bytes
		return
	}
	at, there := slices.BinarySearchFunc(c.parts, p.from, func(q piece, from int64) int { return cmp.Compare(q.from, from) })
	if there {
		c.parts[at] = p
	} else {
		c.parts = slices.Insert(c.parts, at, p)
	}
}

// stored is what a store has, by the names of files.
type stored map[string]*copies

// of returns the copies of a file, none if there are none.
func (s stored) of(file string) *copies {
	if s[file] == nil {
		s[file] = &copies{}
	}
	return s[file]
}

// remove forgets objects.
func (s stored) remove(names []string) {
	for _, name := range names {
		match := storedName.FindStringSubmatch(name)
		c := s.of(match[1])
		if match[2] == "" {
			c.whole = 0
		} else {
			c.parts = slices.DeleteFunc(c.parts, func(p piece) bool { return partName(match[1], p.from) == name })
		}
		if c.whole == 0 && len(c.parts) == 0 {
			delete(s, match[1])
		}
	}
}

// readStore returns what a store has, and when it was last written.
func readStore(ctx context.Context, from Store) (s stored, newest time.Time, err error) {
	all, err := from.List(ctx)
	if err != nil {
		return nil, newest, err
	}
	s = stored{}
	for _, o := range all {
		match := storedName.FindStringSubmatch(o.Name)
		if match == nil || o.Bytes <= 0 {
			continue
		}
		at, err := strconv.ParseInt(cmp.Or(match[2], "0"), 10, 64)
		if err != nil {
			continue
		}
		s.of(match[1]).add(piece{at, o.Bytes}, match[2] == "")
		if o.Modified.After(newest) {
			newest = o.Modified
		}
	}
	return s, newest, nil
}

// InStore is what a store has of a backup, by its listing.
type InStore struct {
	Bases   int   `json:"bases"`
	Changes int   `json:"changes"`
	Bytes   int64 `json:"bytes"`
	// Written is when something was last written, by the store's clock.
	Written time.Time `json:"written"`
	// Gaps are what is missing in files.
	Gaps []string `json:"gaps,omitempty"`
}

// InspectStore says what a store has, without reading it.
func InspectStore(ctx context.Context, from Store) (*InStore, error) {
	all, written, err := readStore(ctx, from)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no backup at %s", from)
	}
	out := &InStore{Written: written}
	for _, name := range sortedNames(all) {
		if isBase(name) {
			out.Bases++
		} else {
			out.Changes++
		}
		end, _ := all[name].read()
		out.Bytes += end
		if g := all[name].gap(); g.bytes > 0 {
			out.Gaps = append(out.Gaps, fmt.Sprintf("%s: bytes %d to %d", name, g.from, g.to()))
		}
	}
	return out, nil
}

// sortedNames returns the names of files, bases first, the oldest first.
func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
