package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/backup"
)

const (
	// putEvery is the pause between two looks at what the store lacks.
	putEvery = time.Second
	// lookEvery is how often the store is listed: it tells whether somebody else writes there, or has removed
	// something.
	lookEvery = 5 * time.Minute
	// tryMost bounds the pause after the store has failed.
	tryMost = 30 * time.Second
	// tellAfter is for how long it is behind before the log says so: most failures of a store pass.
	tellAfter = 5 * time.Second
	// tellEvery is how often the log repeats that the store is behind.
	tellEvery = 10 * time.Minute
	// lastFor bounds the last try, when the process is ended.
	lastFor = 10 * time.Second
	// sameBytes is how much of a file tells that the store has the same one. It is sealed: no two begin alike.
	sameBytes = 4 << 10
)

// mirror keeps a copy of a directory in a store. Whatever the store does, nobody waits for it but run.
//
// The store never has other bytes than the directory: files grow by whole frames, and a base is replaced as a whole.
// What it has too much is removed only after it was seen that it is the copy of this directory.
type mirror struct {
	store     Store
	directory string
	news      chan struct{} // has a message once local has changed

	mu    sync.Mutex
	local map[string]int64 // how many bytes of whole frames the disk has, by the names of files

	// Only run uses these, and finish after it.
	stored  stored // nil: it was not listed
	listed  time.Time
	known   bool      // the store has had the copy of this directory
	same    bool      // it was seen that it still has
	unsure  *step     // what may have been done or not. A late request must find the same step done
	refused time.Time // when it last refused to delete
	behind  time.Time // zero: it is not
	told    time.Time // when the log said so last; zero: it did not
}

// newMirror returns a mirror of what a directory has.
func newMirror(store Store, had *contents) *mirror {
	m := &mirror{store: store, directory: had.directory, news: make(chan struct{}, 1), local: map[string]int64{}}
	for _, files := range [][]*file{had.bases, had.changes} {
		for _, f := range files {
			m.local[filepath.Base(f.name)] = f.whole
		}
	}
	text, err := os.ReadFile(filepath.Join(m.directory, storeName))
	m.known = err == nil && string(text) == store.String()
	return m
}

// note says how much of a file the disk has. It does not wait.
func (m *mirror) note(name string, whole int64) {
	if m != nil {
		m.change(func() { m.local[filepath.Base(name)] = whole })
	}
}

// forget says that files are not needed any more. It does not wait.
func (m *mirror) forget(names []string) {
	if m != nil {
		m.change(func() {
			for _, name := range names {
				delete(m.local, filepath.Base(name))
			}
		})
	}
}

func (m *mirror) change(do func()) {
	m.mu.Lock()
	do()
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *mirror) files() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.local)
}

// run copies until ctx ends. An error is of a store that had another backup when the run began.
func (m *mirror) run(ctx context.Context) error {
	pause, failures := time.Duration(0), 0
	for isFirst := true; sleep(ctx, pause); isFirst = false {
		began := time.Now()
		err := m.catchUp(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is how it ends
		case isFirst && errors.Is(err, errForeign):
			return err
		case err != nil:
			m.tellBehind(ctx, began, err)
			pause = min(putEvery<<min(failures, 10), tryMost)
			failures++
			continue
		}
		if !m.told.IsZero() {
			klog.FromContext(ctx).Info("The store has all of the backup again", "store", m.store, "after", time.Since(m.behind).Round(time.Second))
		}
		m.behind, m.told = time.Time{}, time.Time{}
		pause, failures = putEvery, 0
		m.await(ctx)
	}
	return nil
}

// await returns once there is something to copy, or to look at.
func (m *mirror) await(ctx context.Context) {
	timer := time.NewTimer(time.Until(m.listed.Add(lookEvery)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-m.news:
	}
}

func (m *mirror) tellBehind(ctx context.Context, since time.Time, err error) {
	if m.behind.IsZero() {
		m.behind = since
	}
	if time.Since(m.behind) >= tellAfter && time.Since(m.told) > tellEvery {
		m.told = time.Now()
		klog.FromContext(ctx).Error(err, "The store lacks the end of the backup: it is tried again until the store has it. The directory has all", "store", m.store, "since", m.behind.UTC().Format(time.RFC3339))
	}
}

// finish has a last try, for a while. Call it after run has returned.
func (m *mirror) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastFor, fmt.Errorf("it has not all after %v", lastFor))
	defer cancel()
	if err := m.catchUp(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The store lacks the end of the backup: the next regent backup run in this directory copies it", "store", m.store)
	}
}

// catchUp copies until the store has all.
func (m *mirror) catchUp(ctx context.Context) error {
	if m.stored == nil || time.Since(m.listed) > lookEvery {
		if err := m.look(ctx); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		next := m.unsure
		if next == nil {
			next = plan(m.files(), m.stored, time.Since(m.refused) > tellEvery)
		}
		if next == nil {
			return nil
		}
		if err := m.do(ctx, next); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// do takes a step.
func (m *mirror) do(ctx context.Context, s *step) error {
	if s.remove != nil {
		if err := m.store.Delete(ctx, s.remove); err != nil {
			if ctx.Err() == nil {
				m.refused = time.Now()
				klog.FromContext(ctx).Error(err, "The store keeps what the backup does not need any more: it is tried again later. If it may not delete, see docs/BACKUP.md for who else may", "store", m.store, "objects", len(s.remove), "again", tellEvery)
			}
			return context.Cause(ctx)
		}
		m.stored.remove(s.remove)
		return nil
	}
	m.unsure = s
	did := s.piece
	err := m.read(s.file, s.piece, func(from *io.SectionReader) error {
		name := s.file
		if !s.whole {
			name = partName(s.file, s.from)
		}
		did.bytes = from.Size()
		return m.store.Put(ctx, name, from)
	})
	if errors.Is(err, fs.ErrNotExist) { // it is too old, and was removed meanwhile
		m.forget([]string{s.file})
		err = nil
	} else if err == nil {
		m.stored.of(s.file).add(did, s.whole)
	}
	if err == nil {
		m.unsure = nil
	}
	return err
}

// read opens a piece of a file; one without bytes is all whole frames.
func (m *mirror) read(name string, p piece, take func(*io.SectionReader) error) error {
	opened, err := os.Open(filepath.Join(m.directory, name))
	if err != nil {
		return fmt.Errorf("open a file of the backup: %w", err)
	}
	defer func() { _ = opened.Close() }() // nothing was written
	if p.bytes == 0 {
		info, err := opened.Stat()
		if err != nil {
			return fmt.Errorf("look at a file of the backup: %w", err)
		}
		if _, p.bytes, err = backup.ReadHeads(opened, info.Size()); err != nil {
			return fmt.Errorf("%s: %w", opened.Name(), err)
		}
	}
	return take(io.NewSectionReader(opened, p.from, p.bytes))
}
