package pki

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

type file struct {
	name    string
	content []byte
}

// writeAll writes files in order. Each is durable before the next is written, and none is ever there in part.
func writeAll(files ...file) error {
	for _, f := range files {
		if err := writeFile(f.name, f.content); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a file by rename, so that readers see the old content or the new, and nothing in between.
func writeFile(name string, content []byte) (err error) {
	directory := filepath.Dir(name)
	temporary, err := os.CreateTemp(directory, "."+filepath.Base(name)+"-")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	if err := os.Rename(temporary.Name(), name); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return syncDirectory(directory)
}

func syncDirectory(name string) error {
	directory, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", name, err)
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("cannot sync %s: %w", name, err)
	}
	return nil
}

// othersMayAny are bits of a file's mode.
const othersMayAny = 0o077

// readKey reads a file. It returns an error if other users may read or write it.
func readKey(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&othersMayAny != 0 {
		return nil, fmt.Errorf("others may use the key %s (mode %04o): run chmod 0600 %s; if others had access to this machine, have all keys made again", name, mode, name)
	}
	return io.ReadAll(file)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
