package bundles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// File is a file with bundles. Close it.
type File struct {
	Bundles []*bundle.Bundle
	file    *os.File
}

// OpenFile opens a file and checks all that is in it, so that what is read later is not damaged.
func OpenFile(name string) (*File, error) {
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	f := &File{file: file}
	if err := f.read(); err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (f *File) read() error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no regular file, and a bundle is read from its end: save it in a file first")
	}
	if f.Bundles, err = bundle.Open(f.file, info.Size()); err != nil {
		return err
	}
	for _, b := range f.Bundles {
		if err := b.Each(nil); err != nil {
			return fmt.Errorf("bundle of %s: %w", b.Path, err)
		}
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close the bundle: %w", err)
	}
	return nil
}

// Of returns the bundle of a workspace, and the only one if there is one: a workspace may have been somewhere else.
func (f *File) Of(path logicalcluster.Path) (*bundle.Bundle, error) {
	for _, b := range f.Bundles {
		if b.Path == path.String() || b.Cluster == path.String() {
			return b, nil
		}
	}
	if len(f.Bundles) == 1 {
		return f.Bundles[0], nil
	}
	return nil, fmt.Errorf("the file has bundles of %d workspaces, and none of %s: regent cluster inspect lists them", len(f.Bundles), path)
}

// Show writes the object of a key as JSON, of the first bundle that has it.
func (f *File) Show(to io.Writer, key string, identities []age.Identity) error {
	for _, b := range f.Bundles {
		o, ok, err := b.Find(key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if o, err = bundle.Unseal(o, identities); err != nil {
			return err
		}
		switch {
		case o.Deleted:
			return fmt.Errorf("%s: every workspace has it, and it was deleted from %s", key, b.Path)
		case o.Unreadable != "":
			return fmt.Errorf("%s could not be read when it was exported: %s", key, o.Unreadable)
		}
		if _, err := fmt.Fprintf(to, "%s\n", o.Object); err != nil {
			return fmt.Errorf("print the object: %w", err)
		}
		return nil
	}
	return fmt.Errorf("no object has the key %s: gzip -dc <file> lists all", key)
}

// WriteFile writes a file that only its owner may read, and that is there once it is whole. It does not replace one.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s is there already: give another name, or remove it", name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the file: %w", err)
	}
	part := name + ".part"
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there: another export writes it, or one was ended: remove it if none does", part)
	}
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part) // the error before says more
		}
	}()
	if err = errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(part, name); err != nil {
		return fmt.Errorf("name the file: %w", err)
	}
	return nil
}

// ReadIdentities reads a file with identities of age. No name: there are none.
func ReadIdentities(name string) (_ []age.Identity, err error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("--identity: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	all, err := age.ParseIdentities(file)
	if err != nil {
		return nil, fmt.Errorf("--identity %s has no identity of age, as age-keygen writes them: %w", name, err)
	}
	return all, nil
}
