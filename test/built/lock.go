package built

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// locked does something while no other process does.
func locked(do func() error) (err error) {
	if err := os.MkdirAll(File("bin"), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(File("bin"), ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock bin: %w", err)
	}
	defer func() { _ = lock.Close() }() // and with it goes the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cannot lock bin: %w", err)
	}
	return do()
}
