package pki

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// redoFile holds files that are being replaced together. Once it is there, they are as good as replaced: whoever opens
// the directory next finishes what a crash has cut short. A certificate and its key are two files, and one without the
// other is worth nothing.
const redoFile = ".redo"

// redo is the content of redoFile. Names are relative to the directory. Without content, a file is removed.
type redo struct {
	Files []redoneFile `json:"files"`
}

type redoneFile struct {
	Name    string `json:"name"`
	Content []byte `json:"content,omitempty"`
}

// replaceTogether replaces files, of which a later open finds all or none replaced. The caller holds the directory's
// lock.
func replaceTogether(directory string, files ...file) error {
	var r redo
	for _, f := range files {
		name, err := filepath.Rel(directory, f.name)
		if err != nil {
			return fmt.Errorf("cannot name %s from %s: %w", f.name, directory, err)
		}
		r.Files = append(r.Files, redoneFile{name, f.content})
	}
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode the files to replace: %w", err)
	}
	if err := writeFile(filepath.Join(directory, redoFile), content); err != nil {
		return err
	}
	return finishReplacing(directory)
}

// finishReplacing replaces the files that redoFile holds, if it is there. The caller holds the directory's lock.
func finishReplacing(directory string) error {
	name := filepath.Join(directory, redoFile)
	content, err := readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read what was to be replaced: %w", err)
	}
	var r redo
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("%s is not readable: restore the directory from another replica or a backup: %w", name, err)
	}
	for _, f := range r.Files {
		if err := replaceOrRemove(filepath.Join(directory, f.Name), f.Content); err != nil {
			return err
		}
	}
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return syncDirectory(directory)
}

// replaceOrRemove replaces a file. Without content it removes it.
func replaceOrRemove(name string, content []byte) error {
	if len(content) > 0 {
		return writeFile(name, content)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return nil
}
