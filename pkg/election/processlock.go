package election

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// processLock shows to other processes on the same machine that this process is alive. It is a file, named after the
// process, that the process locks for as long as it lives. However the process dies, the kernel releases the lock. So a
// process that can lock a holder's file, on the same boot of the same machine, knows that the holder is dead. A lone
// replica that restarts thus need not wait for its predecessor's lease to expire.
type processLock struct {
	directory string // empty: there is no file, and no process is known to be dead
	process   string // this process's uuid, which is the file's name
	bootID    string // empty if unknown; then no process is known to be dead
	file      *os.File
}

func newProcessLock(directory string) *processLock {
	l := &processLock{directory: directory, process: uuid.NewString()}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		l.bootID = strings.TrimSpace(string(boot))
	}
	return l
}

// enter creates and locks this process's file. Call it before the first attempt to acquire the lease: other processes
// take an unlocked file for that of a dead process, but conclude nothing from a missing one.
func (l *processLock) enter() error {
	if l.directory == "" {
		return nil
	}
	if err := os.MkdirAll(l.directory, 0o700); err != nil {
		return fmt.Errorf("make the directory of replicas: %w", err)
	}
	for range 10 {
		file, err := os.OpenFile(l.path(l.process), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("create the replica's file: %w", err)
		}
		if err := flock(file, syscall.LOCK_EX); err != nil {
			_ = os.Remove(l.path(l.process)) // others would take it for a dead process's file
			_ = file.Close()
			return fmt.Errorf("lock the replica's file: %w", err)
		}
		if isAt(file, l.path(l.process)) {
			l.file = file
			return nil
		}
		_ = file.Close() // another process removed it between the two calls
	}
	return fmt.Errorf("lock the replica's file: others keep removing it from %s", l.directory)
}

// mark identifies this process's file by device and inode. A copy of the directory has a file of the same name that
// nobody locks. With the name alone that file would prove this process dead. mark returns false if there is no locked
// file.
func (l *processLock) mark() (string, bool) {
	if l.file == nil {
		return "", false
	}
	return markOf(l.file)
}

func markOf(file *os.File) (string, bool) {
	info, err := file.Stat()
	if err != nil {
		return "", false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), true
}

// flock is the system call. It tries again after a signal has interrupted it.
func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// leave closes the file when the process ends in order, and removes it unless this process may still hold the lease
// (mayHold). In that case the unlocked file proves to others that the process is gone.
func (l *processLock) leave(mayHold bool) {
	if l.file == nil {
		return
	}
	if !mayHold {
		_ = os.Remove(l.path(l.process))
	}
	_ = l.file.Close()
	l.file = nil
}

// neighbour reports whether p is that of another process, on this boot of this machine, that may have a file in the
// directory.
func (l *processLock) neighbour(p lease.Presence) bool {
	return l.directory != "" && l.bootID != "" && p.BootID == l.bootID && p.Process != l.process &&
		uuid.Validate(p.Process) == nil // it becomes a file name
}

// knowsDead reports whether the process with that presence is known to be dead. False says nothing.
func (l *processLock) knowsDead(p lease.Presence) bool {
	if !l.neighbour(p) {
		return false
	}
	file, err := os.Open(l.path(p.Process))
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // only read
	if mark, ok := markOf(file); !ok || mark != p.File {
		return false // perhaps this directory is a copy
	}
	// The lock is shared, so that several processes can find out at once.
	return flock(file, syscall.LOCK_SH|syscall.LOCK_NB) == nil && isAt(file, l.path(p.Process))
}

// remove removes the files of these dead processes, except that of the lease's holder.
func (l *processLock) remove(dead []string, holder lease.Presence) {
	for _, process := range dead {
		if process != holder.Process {
			path := l.path(process)
			withLock(path, syscall.LOCK_EX, func() { _ = os.Remove(path) })
		}
	}
}

// dead returns the processes that have left an unlocked file. It leaves out files that cannot be read.
func (l *processLock) dead() (processes []string) {
	if l.directory == "" {
		return nil
	}
	entries, _ := os.ReadDir(l.directory)
	for _, entry := range entries {
		if name := entry.Name(); name != l.process && uuid.Validate(name) == nil {
			withLock(l.path(name), syscall.LOCK_SH, func() { processes = append(processes, name) })
		}
	}
	return processes
}

// withLock calls do while it holds the lock of the file at path. If somebody else has the lock, it does nothing.
func withLock(path string, how int, do func()) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // only read
	if flock(file, how|syscall.LOCK_NB) == nil && isAt(file, path) {
		do()
	}
}

func (l *processLock) path(process string) string { return filepath.Join(l.directory, process) }

// isAt reports whether path still names the open file.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}
