// Package backups follows a shard into a directory, and makes bundles of what the directory has.
package backups

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/regent-project/regent/pkg/server/backup"
)

// Files of frames have these names, with a revision: that of the first frame of a base, and that behind which changes
// begin. They are written under their name with part behind it, if they are not good before they are whole.
const (
	extension = ".frames"
	part      = ".part"
	lockName  = "lock"
)

func nameOf(kind backup.Kind, revision int64) string {
	return fmt.Sprintf("%s-%020d%s", kind, revision, extension)
}

// file is a file of frames of one kind.
type file struct {
	name   string // with its directory
	frames []backup.Placed
	whole  int64 // how many bytes the frames have
}

func (f *file) first() *backup.Placed { return &f.frames[0] }
func (f *file) last() *backup.Placed  { return &f.frames[len(f.frames)-1] }

// contents are all whole frames of a directory.
type contents struct {
	directory      string
	shard          string
	bases, changes []*file // in the order of their revisions
}

// readContents reads the heads of all frames.
func readContents(directory string) (*contents, error) {
	if _, err := os.Stat(filepath.Join(directory, unfetched)); err == nil {
		return nil, fmt.Errorf("%s is not whole: run regent backup fetch again, which continues", directory)
	}
	return readFiles(directory)
}

// readFiles is readContents of a directory that is being fetched, too.
func readFiles(directory string) (*contents, error) {
	names, err := frameFiles(directory)
	if err != nil {
		return nil, err
	}
	c := &contents{directory: directory}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, "-")
		f, err := readFile(filepath.Join(directory, name))
		if err != nil {
			return nil, err
		}
		if len(f.frames) == 0 {
			continue
		}
		if err := c.add(f, backup.Kind(kind)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	byRevision := func(a, b *file) int { return cmp.Compare(a.first().Revision, b.first().Revision) }
	slices.SortFunc(c.bases, byRevision)
	slices.SortFunc(c.changes, byRevision)
	return c, nil
}

func (c *contents) add(f *file, kind backup.Kind) error {
	for _, frame := range f.frames {
		c.shard = cmp.Or(c.shard, frame.Shard)
		switch {
		case frame.Kind != kind:
			return fmt.Errorf("a frame is one of %s: somebody has renamed the file", frame.Kind)
		case frame.Shard != c.shard:
			return fmt.Errorf("it is of shard %s, and other files are of shard %s: a directory is for one shard", frame.Shard, c.shard)
		}
	}
	switch {
	case kind == backup.Changes:
		c.changes = append(c.changes, f)
	case f.last().More:
		return errors.New("the base is not whole: remove the file")
	default:
		c.bases = append(c.bases, f)
	}
	return nil
}

func readFile(name string) (_ *file, err error) {
	opened, err := os.Open(name) //nolint:gosec // in the directory that the user names
	if err != nil {
		return nil, fmt.Errorf("open a file of the backup: %w", err)
	}
	defer func() { _ = opened.Close() }() // nothing was written
	info, err := opened.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at a file of the backup: %w", err)
	}
	f := &file{name: name}
	if f.frames, f.whole, err = backup.ReadHeads(opened, info.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the file, and what it has is lost", name, err)
	}
	return f, nil
}

// Span is a time that can be gone back to, at any moment of it.
type Span struct {
	From         time.Time `json:"from"`
	To           time.Time `json:"to"`
	FromRevision int64     `json:"fromRevision"`
	ToRevision   int64     `json:"toRevision"`
}

// frameIn is a frame of a file.
type frameIn struct {
	*backup.Placed
	of *file
}

// chains returns the frames of changes, cut where some are missing.
func (c *contents) chains() (all [][]frameIn) {
	upTo := int64(-1)
	for _, f := range c.changes {
		for i := range f.frames {
			frame := &f.frames[i]
			if frame.After != upTo {
				all = append(all, nil)
			}
			all[len(all)-1] = append(all[len(all)-1], frameIn{frame, f})
			upTo = frame.Revision
		}
	}
	return all
}

// usable returns the newest base that with changes of the chain makes what was at a revision; nil: there is none.
func (c *contents) usable(chain []frameIn, revision int64) *file {
	for _, base := range slices.Backward(c.bases) {
		if chain[0].After <= base.first().Revision && base.last().Revision <= revision {
			return base
		}
	}
	return nil
}

// spans returns the times that can be gone back to.
func (c *contents) spans() (all []Span) {
	for _, chain := range c.chains() {
		var s *Span
		for _, frame := range chain {
			if frame.Time.IsZero() || s == nil && c.usable(chain, frame.Revision) == nil {
				continue
			}
			if s == nil {
				s = &Span{From: frame.Time, FromRevision: frame.Revision}
			}
			s.To, s.ToRevision = frame.Time, frame.Revision
		}
		if s != nil {
			all = append(all, *s)
		}
	}
	return all
}

// moment is a revision that can be gone back to, and how.
type moment struct {
	time     time.Time
	revision int64
	base     *file
	changes  []frameIn
}

// at returns the last moment that is not behind a time. Zero: the last one.
func (c *contents) at(when time.Time) (*moment, error) {
	var found *moment
	for _, chain := range c.chains() {
		for i, frame := range chain {
			if frame.Time.IsZero() || !when.IsZero() && frame.Time.After(when) {
				continue
			}
			found = &moment{time: frame.Time, revision: frame.Revision, changes: chain[:i+1]}
		}
	}
	if found != nil {
		if found.base = c.usable(found.changes, found.revision); found.base != nil {
			return found, nil
		}
	}
	spans := c.spans()
	if len(spans) == 0 {
		return nil, errors.New("the backup can go back to no time: regent backup run has not taken a whole base yet")
	}
	texts := make([]string, len(spans))
	for i, s := range spans {
		texts[i] = s.From.Format(time.RFC3339) + " to " + s.To.Format(time.RFC3339)
	}
	return nil, fmt.Errorf("the backup cannot go back to %s, only to any time from %s", when.Format(time.RFC3339), strings.Join(texts, ", or from "))
}

// prune removes what is not needed to go back to any time since so long before the last one, and returns what it was.
func (c *contents) prune(keep time.Duration) (names []string, err error) {
	spans := c.spans()
	if len(spans) == 0 {
		return nil, nil
	}
	since, kept := spans[len(spans)-1].To.Add(-keep), -1
	for i, base := range c.bases {
		if !base.last().Time.After(since) {
			kept = i
		}
	}
	if kept < 0 {
		return nil, nil
	}
	old := slices.Clone(c.bases[:kept])
	for _, f := range c.changes[:len(c.changes)-1] { // the last one is being written
		if f.last().Revision <= c.bases[kept].first().Revision {
			old = append(old, f)
		}
	}
	for _, f := range old {
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return names, fmt.Errorf("remove what is too old: %w", err)
		}
		names = append(names, f.name)
	}
	return names, nil
}

// lock makes the directory that of this process, until unlock is called. The kernel releases it however a process ends.
func lock(directory string) (unlock func(), err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the backup: %w", err)
	}
	held, err := os.OpenFile(filepath.Join(directory, lockName), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("open the lock of the directory: %w", err)
	}
	err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another process writes a backup into %s: give each shard a directory of its own", directory)
	}
	if err != nil {
		_ = held.Close() // nothing was written
		return nil, err
	}
	return func() { _ = held.Close() }, nil
}

// writer appends frames to a file.
type writer struct {
	*os.File
	bytes int64
}

// create makes a file, in place of one of its name.
func create(name string) (*writer, error) {
	opened, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the user names the directory
	if err != nil {
		return nil, fmt.Errorf("make a file of the backup: %w", err)
	}
	return &writer{File: opened}, syncDirectory(filepath.Dir(name))
}

// openChanges makes a file of changes, or continues one that is there behind its whole frames: while nothing is
// written, each run has the same name for it. What was copied elsewhere remains a part of it.
func openChanges(name string) (*writer, error) {
	had, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return create(name)
	}
	if err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(name, os.O_WRONLY, 0) //nolint:gosec // the user names the directory
	if err != nil {
		return nil, fmt.Errorf("open a file of the backup: %w", err)
	}
	_, err = opened.Seek(had.whole, io.SeekStart)
	if err = errors.Join(opened.Truncate(had.whole), err); err != nil {
		return nil, errors.Join(fmt.Errorf("continue a file of the backup: %w", err), opened.Close())
	}
	return &writer{opened, had.whole}, nil
}

// append writes a frame, and returns once the disk has it.
func (w *writer) append(frame []byte) error {
	n, err := w.Write(frame)
	w.bytes += int64(n)
	if err = errors.Join(err, w.Sync()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

// syncDirectory has the disk know which files there are.
func syncDirectory(directory string) error {
	opened, err := os.Open(directory) //nolint:gosec // the user names it
	if err == nil {
		err = errors.Join(opened.Sync(), opened.Close())
	}
	if err != nil {
		return fmt.Errorf("write the directory of the backup: %w", err)
	}
	return nil
}

// parseAnswer returns what a replica has answered.
func parseAnswer(text []byte) (next string, head backup.Head, frame []byte, err error) {
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	if next, err = parseNext(first); err == nil {
		head, frame, err = backup.ReadFrame(bufio.NewReader(bytes.NewReader(rest)))
	}
	if err != nil {
		return "", head, nil, fmt.Errorf("the answer of the server is no frame: %w", err)
	}
	return next, head, frame, nil
}
