package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// makeAndLock is lock for a directory that may not be there yet.
func makeAndLock(directory string) (unlock func(), err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for keys (below --root-directory): %w", err)
	}
	return lock(directory)
}

// lockName is the name of the file that is locked. It has no content.
const lockName = "lock"

// lock waits until nobody else changes a directory, and keeps it so until unlock. It refuses a directory in which
// others may write.
func lock(directory string) (unlock func(), err error) {
	if err := refuseWritable(directory); err != nil {
		return nil, err
	}
	return lockFile(filepath.Join(directory, lockName))
}

// lockFile waits until no other process holds the lock.
func lockFile(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock file of the directory for keys: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", name, err)
	}
	return func() { _ = file.Close() }, nil
}

// othersMayWrite are bits of a file's mode.
const othersMayWrite = 0o022

// refuseWritable returns an error if other users may write to the directory, and could put keys of theirs there.
func refuseWritable(directory string) error {
	info, err := os.Stat(directory)
	if err != nil {
		return fmt.Errorf("cannot look at the directory for keys (below --root-directory): %w", err)
	}
	if mode := info.Mode().Perm(); mode&othersMayWrite != 0 {
		return fmt.Errorf("others may write to %s (mode %04o), and who can exchange the keys there rules the shard: "+
			"if you trust what is in it, run chmod 0700 %s, else remove it and have it made again", directory, mode, directory)
	}
	return nil
}
