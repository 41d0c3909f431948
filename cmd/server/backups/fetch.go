package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/cmd/server/backups/s3"
)

// unfetched is a file that a directory has until all was fetched into it. It has the URL from which.
const unfetched = "fetch" + part

// listMost is how often the store is listed, if what it had is gone meanwhile: its writer removes and joins objects.
const listMost = 5

// Fetch makes a directory of the copy that a store has, verifies it, and says what it has. The directory must have no
// backup, or what an earlier call has begun, which this one continues. Until all is there, nobody takes the directory
// for a backup.
func Fetch(ctx context.Context, from Store, directory string) (*Inspected, error) {
	unlock, err := lock(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := beginFetch(from, directory); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		is, _, err := readStore(ctx, from)
		if err != nil {
			return nil, err
		}
		if len(is) == 0 {
			return nil, fmt.Errorf("there is no backup at %s", from)
		}
		err = fetchAll(ctx, from, is, directory)
		if err == nil {
			break
		}
		if n == listMost || !errors.Is(err, s3.ErrMissing) {
			return nil, fmt.Errorf("%s is not whole: run regent backup fetch again, which continues: %w", directory, err)
		}
	}
	all, err := readFiles(directory)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(syncDirectory(directory), os.Remove(filepath.Join(directory, unfetched)), syncDirectory(directory)); err != nil {
		return nil, fmt.Errorf("end the fetch: %w", err)
	}
	return all.inspect(), nil
}

// beginFetch marks a directory.
func beginFetch(from Store, directory string) error {
	switch begun, err := os.ReadFile(filepath.Join(directory, unfetched)); { //nolint:gosec // the user names it
	case err == nil && (len(begun) == 0 || string(begun) == from.String()):
	case err == nil:
		return fmt.Errorf("%s has a part of what was fetched from %s: fetch the rest from there, or give another directory", directory, begun)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read what was fetched: %w", err)
	default:
		names, err := frameFiles(directory)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("%s has a backup already: give an empty or a new directory", directory)
		}
	}
	if err := os.WriteFile(filepath.Join(directory, unfetched), []byte(from.String()), 0o600); err != nil {
		return fmt.Errorf("begin the fetch: %w", err)
	}
	return syncDirectory(directory)
}

// frameFiles returns the names of files of frames, without the directory.
func frameFiles(directory string) (names []string, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("read the directory of the backup: %w", err)
	}
	for _, entry := range entries {
		if strings.Contains(entry.Name(), "-") && strings.HasSuffix(entry.Name(), extension) && !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func fetchAll(ctx context.Context, from Store, is stored, directory string) error {
	had, err := frameFiles(directory)
	if err != nil {
		return err
	}
	for _, name := range had {
		if is[name] == nil { // the store has removed it since an earlier call
			if err := os.Remove(filepath.Join(directory, name)); err != nil {
				return fmt.Errorf("remove what the store has no more: %w", err)
			}
		}
	}
	for _, name := range sortedNames(is) {
		if err := fetchFile(ctx, from, name, is[name], filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

// fetchFile makes a file of its objects, if an earlier call has not, and verifies it.
func fetchFile(ctx context.Context, from Store, name string, c *copies, to string) error {
	if g := c.gap(); g.bytes > 0 {
		return fmt.Errorf("the store lacks bytes %d to %d of %s: regent backup run puts them again from its directory. If that is lost, delete the objects %s%s<offset> behind them", g.from, g.to(), name, name, parts)
	}
	end, needed := c.read()
	if info, err := os.Stat(to); err == nil && info.Size() == end && verifyFile(to) == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Fetching", "file", name, "bytes", end)
	if err := download(ctx, from, name, c.whole, needed, to); err != nil {
		return err
	}
	if err := verifyFile(to); err != nil {
		return fmt.Errorf("%s/%s: %w. If it is the same again, delete the object, and what it has is lost", from, name, errors.Join(err, os.Remove(to)))
	}
	return nil
}

func download(ctx context.Context, from Store, name string, whole int64, needed []piece, to string) (err error) {
	out, err := create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if whole > 0 {
		if err := from.Get(ctx, name, whole, io.NewOffsetWriter(out, 0)); err != nil {
			return err
		}
	}
	for _, p := range needed {
		if err := from.Get(ctx, partName(name, p.from), p.bytes, io.NewOffsetWriter(out, p.from)); err != nil {
			return err
		}
	}
	if err := out.Sync(); err != nil {
		return fmt.Errorf("write what was fetched: %w", err)
	}
	return nil
}

func verifyFile(name string) error {
	f, err := readFile(name)
	if err != nil {
		return err
	}
	if info, err := os.Stat(name); err != nil || info.Size() != f.whole && isBase(filepath.Base(name)) {
		return errors.Join(errors.New("the base is not whole"), err)
	}
	return f.verify()
}
