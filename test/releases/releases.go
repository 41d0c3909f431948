// Package releases has what each release of Regent has stored, as that release has made it (package fill), and the test
// that this version reads it: below <version>, a snapshot of etcd, what the release served of it, and the keys without
// which nobody can read it. The keys are for tests, and open nothing else.
package releases

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/regent-project/regent/test/built"
)

// Files of a release.
const (
	snapshotFile   = "etcd.db.gz"
	servedFile     = "served.json.gz"
	encryptionFile = "encryption.yaml"
	keysDirectory  = "pki"
)

// Prefix is where the shard of each release has its keys in etcd, and Name its name.
const (
	Prefix = "/registry"
	Name   = "root"
)

// Data is what a release has stored.
type Data struct {
	// Version is the release's.
	Version string
	// Snapshot is one of its etcd, and Served what it served of it.
	Snapshot []byte
	Served   Served
	// Terms are what it told of its terms, the latest first.
	Terms []map[string]any
	// Keys is the directory pki of a replica, and Encryption its EncryptionConfiguration.
	Keys, Encryption string
}

// directory is that of all releases.
func directory() string { return built.File("test/releases") }

// Versions returns the releases whose data are kept, in the order of their names.
func Versions() ([]string, error) {
	kept, err := filepath.Glob(filepath.Join(directory(), "v*", snapshotFile))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, file := range kept {
		versions = append(versions, filepath.Base(filepath.Dir(file)))
	}
	return versions, nil
}

// answers are what a release has answered.
type answers struct {
	Served *Served
	Terms  *[]map[string]any
}

// Read reads the data of a release.
func Read(version string) (*Data, error) {
	in := filepath.Join(directory(), version)
	d := &Data{Version: version, Keys: filepath.Join(in, keysDirectory), Encryption: filepath.Join(in, encryptionFile)}
	var err error
	if d.Snapshot, err = unpack(filepath.Join(in, snapshotFile)); err != nil {
		return nil, err
	}
	served, err := unpack(filepath.Join(in, servedFile))
	if err != nil {
		return nil, err
	}
	told := answers{Served: &d.Served, Terms: &d.Terms}
	if err := json.Unmarshal(served, &told); err != nil {
		return nil, fmt.Errorf("what release %s served: %w", version, err)
	}
	return d, nil
}

// Write keeps the data of a release, in place of what was kept of it.
func (d *Data) Write() error {
	in := filepath.Join(directory(), d.Version)
	if err := os.RemoveAll(in); err != nil {
		return err
	}
	if err := copyFiles(filepath.Join(in, keysDirectory), d.Keys); err != nil {
		return err
	}
	encryption, err := os.ReadFile(d.Encryption)
	if err != nil {
		return err
	}
	served, err := json.MarshalIndent(answers{&d.Served, &d.Terms}, "", " ")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{snapshotFile: d.Snapshot, servedFile: served} {
		if err := pack(filepath.Join(in, name), content); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(in, encryptionFile), encryption, 0o644) //nolint:gosec // of a test
}

func copyFiles(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // of a test
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("cannot copy keys: %w", err)
	}
	// who uses them now
	if err := os.Remove(filepath.Join(to, "lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return filepath.WalkDir(to, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Chmod(name, 0o600)
	})
}

func pack(file string, content []byte) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, packed.Bytes(), 0o644) //nolint:gosec // of a test
}

func unpack(file string) ([]byte, error) {
	packed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return content, nil
}
