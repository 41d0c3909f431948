package pki

import (
	"errors"
	"fmt"
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
