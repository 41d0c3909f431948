package fileutil

import (
	"os"
	"syscall"

	"github.com/regent-project/regent/test/tools/etcd/slowdisk"
)

// Fsync is what etcd calls when it makes or renames files.
func Fsync(f *os.File) error {
	slowdisk.Wait()
	return f.Sync()
}

// Fdatasync is what an entry of raft's log waits for.
func Fdatasync(f *os.File) error {
	slowdisk.Wait()
	return syscall.Fdatasync(int(f.Fd()))
}
