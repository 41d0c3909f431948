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

// replica is this process as others on the same machine can tell that it lives: a file named after it, locked for as
// long as it does. The kernel gives the lock up whatever the process dies of, so whoever can lock the file of a holder
// that runs on the same boot of the same machine knows that the holder is dead. A lone replica that restarts leads again
// without waiting for its predecessor's lease.
type replica struct {
	directory string // empty: no file, nobody is known to be dead
	process   string // uuid
	bootID    string // empty: unknown, as where the directory cannot be trusted to be on this machine only
	file      *os.File
}

func newReplica(directory string) *replica {
	r := &replica{directory: directory, process: uuid.NewString()}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		r.bootID = strings.TrimSpace(string(boot))
	}
	return r
}

// enter creates and locks this process's file. It must come before the first acquire: peers take an unlocked file for a
// dead process, a missing one for nothing.
func (r *replica) enter() error {
	if r.directory == "" {
		return nil
	}
	if err := os.MkdirAll(r.directory, 0o700); err != nil {
		return fmt.Errorf("make the directory of replicas: %w", err)
	}
	for range 10 {
		file, err := os.OpenFile(r.path(r.process), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("create the replica's file: %w", err)
		}
		if err := flock(file, syscall.LOCK_EX); err != nil {
			_ = os.Remove(r.path(r.process)) // nobody may take it for a dead process's
			_ = file.Close()
			return fmt.Errorf("lock the replica's file: %w", err)
		}
		if isAt(file, r.path(r.process)) {
			r.file = file
			return nil
		}
		_ = file.Close() // a starter swept it away between the two calls
	}
	return fmt.Errorf("lock the replica's file: others keep removing it from %s", r.directory)
}

// mark tells this process's file from any other, copies included. It reports false if there is no file that is locked.
func (r *replica) mark() (string, bool) {
	if r.file == nil {
		return "", false
	}
	return markOf(r.file)
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
func (r *replica) leave(mayHold bool) {
	if r.file == nil {
		return
	}
	if !mayHold {
		_ = os.Remove(r.path(r.process))
	}
	_ = r.file.Close()
	r.file = nil
}

// neighbour reports whether p is another process on this boot of this machine that may have a file here.
func (r *replica) neighbour(p lease.Presence) bool {
	return r.directory != "" && r.bootID != "" && p.BootID == r.bootID && p.Process != r.process &&
		uuid.Validate(p.Process) == nil // it becomes a file name
}

// knowsDead reports whether the process that p tells of is known to be dead. False means nothing.
func (r *replica) knowsDead(p lease.Presence) bool {
	if !r.neighbour(p) {
		return false
	}
	file, err := os.Open(r.path(p.Process))
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // only read
	if mark, ok := markOf(file); !ok || mark != p.File {
		return false // a copy of the directory, perhaps
	}
	// Shared, so that several can find out at once.
	return flock(file, syscall.LOCK_SH|syscall.LOCK_NB) == nil && isAt(file, r.path(p.Process))
}

// remove removes the files of these processes, which are dead, but that of spare.
func (r *replica) remove(dead []string, spare lease.Presence) {
	for _, process := range dead {
		if process != spare.Process {
			path := r.path(process)
			withLock(path, syscall.LOCK_EX, func() { _ = os.Remove(path) })
		}
	}
}

// dead are the dead processes that have left a file. What cannot be read is not among them.
func (r *replica) dead() (processes []string) {
	if r.directory == "" {
		return nil
	}
	entries, _ := os.ReadDir(r.directory)
	for _, entry := range entries {
		if name := entry.Name(); name != r.process && uuid.Validate(name) == nil {
			withLock(r.path(name), syscall.LOCK_SH, func() { processes = append(processes, name) })
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

func (r *replica) path(process string) string { return filepath.Join(r.directory, process) }

// isAt reports whether path still names the open file.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}
