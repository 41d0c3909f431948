package main

import (
	"bytes"
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

// A batch is what one go command compiles: units of one module, with or without the race detector, of which no two have
// the same last element, after which Go names what it compiles.
type batch struct {
	directory string // below the directory of all compiled tests
	units     []unit
}

// batchWall is from how long on a unit is compiled by itself, so that it can begin.
const batchWall = 40 * time.Second

// batches divides units into batches, in the order in which they are compiled: units that take long come first, so that
// they run while others are compiled.
func (c costs) batches(units []unit) []batch {
	var all []batch
	alone := func(u unit) bool { return c.of(u).Wall >= batchWall }
	for _, u := range units {
		at := slices.IndexFunc(all, func(b batch) bool {
			first := b.units[0]
			return !alone(u) && !alone(first) && len(b.units) < batchSize && first.module == u.module && first.race == u.race &&
				!slices.ContainsFunc(b.units, func(o unit) bool { return path.Base(o.name) == path.Base(u.name) })
		})
		if at < 0 {
			at = len(all)
			all = append(all, batch{directory: fmt.Sprintf("%02d", at)})
		}
		all[at].units = append(all[at].units, u)
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

// compile compiles a batch below a directory, and returns what can run, and the CPU time that it took. A unit that does
// not compile is missing from what it returns; the error has what the compiler said.
func compile(ctx context.Context, root, out string, b batch) ([]runnable, time.Duration, error) {
	directory := filepath.Join(out, b.directory)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, 0, err
	}
	first := b.units[0]
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", directory + string(filepath.Separator)}
	if first.race {
		args = append(args, "-race")
	}
	for _, u := range b.units {
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
	err := command.Start()
	if err == nil {
		yield(command, compilerNice)
		err = command.Wait()
	}
	var took time.Duration
	if state := command.ProcessState; state != nil {
		took = state.UserTime() + state.SystemTime()
	}
	var ready []runnable
	for _, u := range b.units {
		binary := filepath.Join(directory, path.Base(u.name)+".test")
		if _, missing := os.Stat(binary); missing == nil {
			ready = append(ready, runnable{unit: u, binary: binary})
		}
	}
	switch {
	case err != nil:
		return ready, took, fmt.Errorf("go %s: %w\n%s", strings.Join(args[:len(args)-len(b.units)], " "), err, said.Bytes())
	case len(ready) < len(b.units):
		return ready, took, errors.New("go test -c says nothing, and has not made all tests: " + said.String())
	}
	return ready, took, nil
}
