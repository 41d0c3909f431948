package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Install copies the files of a directory so that only this process's user can read the copies. A mounted Secret, for
// example, is read by a whole group, so replicas refuse the keys in it. Directories and files whose names begin with a
// dot are left out: a mounted Secret has some, and they are not part of it. So is a directory's lock. What is in to
// already is replaced by files of the same name, and otherwise kept.
func Install(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("cannot read the directory to copy: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for keys: %w", err)
	}
	var files []file
	for _, e := range entries {
		name := filepath.Join(from, e.Name())
		info, err := os.Stat(name) // what a link leads to
		switch {
		// a Secret of a whole directory has its lock, too
		case strings.HasPrefix(e.Name(), "."), e.Name() == lockName:
			continue
		case err != nil:
			return fmt.Errorf("cannot look at a file to copy: %w", err)
		case info.IsDir():
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot read a file to copy: %w", err)
		}
		files = append(files, file{filepath.Join(to, e.Name()), content})
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: %w", from, errNothing)
	}
	unlock, err := lock(to)
	if err != nil {
		return err
	}
	defer unlock()
	return writeAll(files...)
}

// errNothing says that Install was given an empty directory.
var errNothing = errors.New("there is no file to copy: look whether the Secret has any, and is mounted there")
