package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// A replica may be killed at any moment of its first start. Whatever of the log was written by then, the next start
// serves: with what has been committed, or anew if nothing has.
func TestAFirstStartThatWasCutShortIsBegunAnew(t *testing.T) {
	directory := t.TempDir()
	start(t, directory).Close()
	files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dataOf(directory)), "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	log, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	cutShort := func(t *testing.T, length int) (directory string) {
		t.Helper()
		directory = t.TempDir()
		file := filepath.Join(datadir.ToWALDir(dataOf(directory)), filepath.Base(files[0]))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		// The file is preallocated: what was not written is zero.
		content := append(bytes.Clone(log[:length]), make([]byte, 1<<20)...)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return directory
	}
	// The log can end after any record: records are written as a whole.
	var without []int // lengths without a commit
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder, record, first := wal.NewDecoder(fileutil.NewFileReader(file)), &walpb.Record{}, 0
	for first == 0 {
		if err := decoder.Decode(record); err != nil {
			t.Fatal(err)
		}
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
		}
		length := int(decoder.LastOffset())
		switch begun, err := hasBegun(datadir.ToWALDir(dataOf(cutShort(t, length)))); {
		case err != nil:
			t.Fatal(err)
		case begun:
			first = length
		default:
			without = append(without, length)
		}
	}
	if len(without) < 4 { // checksum, metadata, snapshot, and the entry that is to be committed
		t.Fatalf("a log has its first commit at %d bytes, after %v", first, without)
	}
	for _, length := range append(without, 0, first) {
		t.Run(fmt.Sprintf("%d bytes", length), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := Start(ctx, Config{Directory: cutShort(t, length)})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		})
	}
}

// A disk that has lost the log has not lost the database. Nothing is deleted then.
func TestDataWhoseLogIsLostIsKept(t *testing.T) {
	directory := t.TempDir()
	s := start(t, directory)
	put(t, s, "a", "b")
	s.Close()
	data := dataOf(directory)
	files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(data), "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if begun, err := hasBegun(datadir.ToWALDir(data)); begun || err != nil {
		t.Fatal(begun, err)
	}
	if err := discardUnbegun(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(datadir.ToBackendFileName(data)); err != nil {
		t.Error(err)
	}
}

// A first start may be cut short between the creation of the database and its first page.
func TestAnEmptyDatabaseHasAppliedNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	if hasApplied(file) {
		t.Error("a database that is not there has applied something")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if hasApplied(file) {
		t.Error("an empty database has applied something")
	}
	if err := os.WriteFile(file, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !hasApplied(file) {
		t.Error("a database that cannot be read is taken for an empty one")
	}
}
