package bbolt

import (
	"syscall"

	"github.com/regent-project/regent/test/tools/etcd/slowdisk"
)

// fdatasync is what a commit of the database waits for.
func fdatasync(db *DB) error {
	slowdisk.Wait()
	return syscall.Fdatasync(int(db.file.Fd()))
}
