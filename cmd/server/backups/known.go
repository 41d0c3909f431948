package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// storeName is a file of the directory with the URL of the store that has its copy. A store that was down for so long
// that everything it has was removed here is known by it.
const storeName = "store"

// know remembers that the store has the copy of this directory.
func (m *mirror) know() error {
	if m.known {
		return nil
	}
	if err := os.WriteFile(filepath.Join(m.directory, storeName), []byte(m.store.String()), 0o600); err != nil {
		return fmt.Errorf("remember the store: %w", err)
	}
	m.known = true
	return syncDirectory(m.directory)
}

// forgetStore is for a directory without files: what it had is lost, and the store may have the only copy.
func forgetStore(directory string) error {
	if err := os.Remove(filepath.Join(directory, storeName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the store: %w", err)
	}
	return nil
}

// look lists the store, and sees whether it has the copy of this directory.
func (m *mirror) look(ctx context.Context) error {
	is, _, err := readStore(ctx, m.store)
	if err != nil {
		return err
	}
	local := m.files()
	common := commonOf(local, is)
	if err := compare(local, is, m.known || len(common) > 0); err != nil {
		return fmt.Errorf("%s: %w", m.store, err)
	}
	if !m.same && len(common) > 0 {
		if err := m.compareBytes(ctx, common, local, is); err != nil {
			return err
		}
	}
	m.stored, m.listed, m.same = is, time.Now(), true
	return m.know()
}

// compareBytes says by what a file begins with whether the store has a copy of the directory. Names alone do not tell:
// a new backup of a shard in which nothing was written has files of the same names.
func (m *mirror) compareBytes(ctx context.Context, common []string, local map[string]int64, is stored) error {
	for _, name := range slices.Backward(common) { // changes first, which are never replaced
		if isBase(name) && m.known {
			return nil // another one with the same objects may have taken its place
		}
		c := is[name]
		object, there := name, c.whole
		if there == 0 && c.parts[0].from == 0 {
			object, there = partName(name, 0), c.parts[0].bytes
		}
		if there = min(there, local[name], sameBytes); there == 0 {
			continue
		}
		var want, got bytes.Buffer
		if err := m.read(name, piece{0, there}, func(from *io.SectionReader) error { _, err := io.Copy(&want, from); return err }); err != nil {
			return err
		}
		if err := m.store.Get(ctx, object, there, &got); err != nil {
			return err
		}
		if bytes.Equal(want.Bytes(), got.Bytes()) {
			return nil
		}
		break
	}
	return fmt.Errorf("%s: %w, with files of the same names: %s", m.store, errForeign, instead)
}
