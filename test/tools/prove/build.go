package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A batch is what one go command compiles: units of one home.
type batch []unit

// batchWall is from how long on a unit is compiled by itself, so that it can begin.
const batchWall = 40 * time.Second

// batches divides units into batches, in the order in which they are compiled: units that take long come first, so that
// they run while others are compiled.
func (c costs) batches(units []unit) []batch {
	var all []batch
	alone := func(u unit) bool { return c.of(u).Wall >= batchWall }
	for _, u := range units {
		at := slices.IndexFunc(all, func(b batch) bool {
			return !alone(u) && !alone(b[0]) && len(b) < batchSize && b[0].home == u.home
		})
		if at < 0 {
			at = len(all)
			all = append(all, nil)
		}
		all[at] = append(all[at], u)
	}
	return all
}

// batchSize bounds a batch: its tests run when all of it is compiled.
const batchSize = 12

// A runnable unit is compiled, and can run.
type runnable struct {
	unit
	binary string
}

// openBinaries returns the directory of compiled tests, and what gives it back. It is the same in each run of a user,
// so that Go links again only what has changed: linking is as dear as a fifth of the tests. While another run uses it,
// it is a new one.
func openBinaries() (directory string, release func(), err error) {
	if directory, release, err = lockBinaries(); err == nil {
		return directory, release, nil
	}
	if directory, err = os.MkdirTemp("", "regent-tests-"); err != nil {
		return "", nil, fmt.Errorf("there is no place for compiled tests: %w", err)
	}
	return directory, func() { _ = os.RemoveAll(directory) }, nil
}

func lockBinaries() (directory string, release func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, err
	}
	directory = filepath.Join(cache, "regent", "tests")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return directory, func() { _ = lock.Close() }, nil
}

// compile compiles a batch, and returns the units that can run, and the CPU time that it took. What is there of a unit
// that does not compile is of an earlier run: it cannot run. The error has what the compiler said.
func compile(b batch, link func(batch) (time.Duration, error)) (ready []unit, took time.Duration, err error) {
	took, err = link(b)
	if err == nil {
		return b, took, nil
	}
	if len(b) == 1 {
		return nil, took, err
	}
	var all []error
	for _, u := range b {
		one, again, err := compile(batch{u}, link)
		ready, took, all = append(ready, one...), took+again, append(all, err)
	}
	return ready, took, cmp.Or(errors.Join(all...), err)
}

// binary is where a unit is compiled to: Go names it after the last element of its path.
func (u unit) binary(out string) string {
	return filepath.Join(out, u.home, path.Base(u.name)+".test")
}

// link has go compile and link a batch.
func link(ctx context.Context, root, out string, b batch) (took time.Duration, err error) {
	first := b[0]
	directory := filepath.Join(out, first.home)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return 0, err
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", directory + string(filepath.Separator)}
	if first.race {
		args = append(args, "-race")
	}
	flags := len(args)
	for _, u := range b {
		args = append(args, u.path)
	}
	command := exec.CommandContext(ctx, goCommand, args...)
	command.Dir, command.Env = filepath.Join(root, first.module), environment(root, first.module)
	if first.race {
		command.Env = append(command.Env, "CGO_ENABLED=1")
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err = command.Start(); err == nil {
		yield(command, compilerNice)
		err = command.Wait()
	}
	if state := command.ProcessState; state != nil {
		took = state.UserTime() + state.SystemTime()
	}
	if err != nil {
		return took, fmt.Errorf("go %s: %w\n%s", strings.Join(args[:flags], " "), err, said.Bytes())
	}
	for _, u := range b {
		if _, err := os.Stat(u.binary(out)); err != nil {
			return took, fmt.Errorf("go test -c has not made the tests of %s: %w\n%s", u.name, err, said.Bytes())
		}
	}
	return took, nil
}
