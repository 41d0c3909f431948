package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"k8s.io/klog/v2"
)

// discardUnbegun deletes the data of a first start that ended before etcd had committed anything. The first thing that
// a new member commits is that it is a member. On a restart without it, etcd believes in a cluster of no members,
// elects no leader, and never serves. Nothing can be lost: etcd answers no write before that commit. A log that a disk
// has emptied is no such start: the database then tells what it has applied, and etcd must say what is wrong.
func discardUnbegun(ctx context.Context, data string) error {
	begun, err := hasBegun(datadir.ToWALDir(data))
	if begun || err != nil || hasApplied(datadir.ToBackendFileName(data)) {
		return err
	}
	klog.FromContext(ctx).Info("The first start of this etcd was cut short: its data is empty, and begun anew", "directory", data)
	if err := os.RemoveAll(datadir.ToMemberDir(data)); err != nil {
		return fmt.Errorf("cannot delete the empty data of an etcd whose first start was cut short: %w", err)
	}
	return nil
}

// hasBegun reports whether the log in a directory has a commit, or is not there. What etcd has to repair, or to
// complain about, has begun.
func hasBegun(directory string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.wal"))
	if err != nil || len(files) != 1 { // a log has several files only once it is 64 MiB long
		return true, err
	}
	file, err := os.Open(files[0])
	if err != nil {
		return false, fmt.Errorf("cannot read the embedded etcd's log: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	for record := (&walpb.Record{}); ; {
		switch err := decoder.Decode(record); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return false, nil
		case err != nil:
			return true, nil //nolint:nilerr // etcd will say what is wrong with it
		}
		switch record.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(record.GetCrc())
		case wal.StateType:
			if wal.MustUnmarshalState(record.GetData()).GetCommit() > 0 {
				return true, nil
			}
		}
	}
}

// hasApplied reports whether a database holds the effect of more than the first entry of the log, or cannot be read.
// The first entry is that the member exists. etcd may apply it before it is in the log.
func hasApplied(file string) bool {
	if info, err := os.Stat(file); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return false
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return true
	}
	defer db.Close() //nolint:errcheck // only read
	applied := false
	err = db.View(func(tx *bbolt.Tx) error {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			index := meta.Get(schema.MetaConsistentIndexKeyName)
			applied = len(index) == 8 && binary.BigEndian.Uint64(index) > 1
		}
		return nil
	})
	return applied || err != nil
}
