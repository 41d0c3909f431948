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

// processLock is this process as others on the same machine can tell that it lives: a file named after it, locked for as
// long as it does. The kernel gives the lock up whatever the process dies of, so whoever can lock the file of a holder
// that runs on the same boot of the same machine knows that the holder is dead. A lone replica that restarts leads again
// without waiting for its predecessor's lease.
type processLock struct {
	directory string // empty: no file, nobody is known to be dead
	process   string // uuid
	bootID    string // empty: unknown, as where the directory cannot be trusted to be on this machine only
	file      *os.File
}

func newProcessLock(directory string) *processLock {
	l := &processLock{directory: directory, process: uuid.NewString()}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		l.bootID = strings.TrimSpace(string(boot))
	}
	return l
}

// enter creates and locks this process's file. It must come before the first acquire: peers take an unlocked file for a
// dead process, a missing one for nothing.
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
			_ = os.Remove(l.path(l.process)) // nobody may take it for a dead process's
			_ = file.Close()
			return fmt.Errorf("lock the replica's file: %w", err)
		}
		if isAt(file, l.path(l.process)) {
			l.file = file
			return nil
		}
		_ = file.Close() // a starter swept it away between the two calls
	}
	return fmt.Errorf("lock the replica's file: others keep removing it from %s", l.directory)
}

// mark tells this process's file from any other. In a copy of the root directory the file has the same name, but nobody locks it:
// without the mark it would prove that this process is dead. mark reports false if there is no file that is locked.
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

// flock is the system call, tried again when a signal interrupts it.
func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// leave removes the file, at an orderly exit. If the lease may still be held by this process, the file is the proof for others
// that nobody works under it, and stays.
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

// neighbour reports whether p is another process on this boot of this machine that may have a file here.
func (l *processLock) neighbour(p lease.Presence) bool {
	return l.directory != "" && l.bootID != "" && p.BootID == l.bootID && p.Process != l.process &&
		uuid.Validate(p.Process) == nil // it becomes a file name
}

// knowsDead reports whether the process that p tells of is known to be dead. False means nothing.
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
		return false // a copy of the directory, perhaps
	}
	// Shared, so that several can find out at once.
	return flock(file, syscall.LOCK_SH|syscall.LOCK_NB) == nil && isAt(file, l.path(p.Process))
}

// remove removes the files of these processes, which are dead, but that of spare.
func (l *processLock) remove(dead []string, spare lease.Presence) {
	for _, process := range dead {
		if process != spare.Process {
			path := l.path(process)
			withLock(path, syscall.LOCK_EX, func() { _ = os.Remove(path) })
		}
	}
}

// dead are the dead processes that have left a file. What cannot be read is not among them.
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

// withLock calls do if it gets the lock of the file that is at path at once.
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
