package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// outcome is what happened to a mutant.
type outcome int

const (
	// survived: the tests pass.
	survived outcome = iota
	// killed: the tests fail, or do not end in time.
	killed
	// unusable: the mutant does not compile.
	unusable
)

// runner runs the go command.
type runner struct {
	command []string      // go, and what comes before it
	timeout time.Duration // of one run of a package's tests
}

// mutantsOf returns the mutants of the package in a directory. It leaves out tests, and files that are not built on
// this platform.
func (r runner) mutantsOf(ctx context.Context, directory string) ([]mutant, error) {
	out, err := r.call(ctx, directory, "list", "-f", `{{join .GoFiles "\n"}}`, ".").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", directory, err)
	}
	var all []mutant
	for name := range strings.FieldsSeq(string(out)) {
		file := path.Join(filepath.ToSlash(directory), name)
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		mutants, err := find(file, source)
		if err != nil {
			return nil, err
		}
		all = append(all, mutants...)
	}
	return all, nil
}

// unbroken returns how long the tests take without a mutant. It returns an error if they fail, because then they would
// kill every mutant.
func (r runner) unbroken(ctx context.Context, directory string) (time.Duration, error) {
	began := time.Now()
	if out, err := r.test(ctx, directory, "").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("the tests of %s fail without any mutant: mend that first: %w\n%s", directory, err, out)
	}
	return time.Since(began), nil
}

// run tests the package with a mutant.
func (r runner) run(ctx context.Context, directory string, m mutant) (_ outcome, took time.Duration, _ error) {
	overlay, remove, err := overlayOf(m)
	if err != nil {
		return 0, 0, err
	}
	defer remove()
	began := time.Now()
	out, err := r.test(ctx, directory, overlay).CombinedOutput()
	took = time.Since(began)
	switch _, failed := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return 0, took, ctx.Err()
	case err == nil:
		return survived, took, nil
	case !failed:
		return 0, took, err
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return unusable, took, nil
	default:
		return killed, took, nil
	}
}

// overlayOf writes an overlay with which the go command compiles the mutant. remove removes it.
func overlayOf(m mutant) (overlay string, remove func(), err error) {
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", nil, err
	}
	directory, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(directory) }
	mutated := filepath.Join(directory, filepath.Base(m.file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err == nil {
		err = os.WriteFile(mutated, m.mutated(), 0o600)
	}
	overlay = filepath.Join(directory, "overlay.json")
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return overlay, remove, nil
}

func (r runner) test(ctx context.Context, directory, overlay string) *exec.Cmd {
	args := []string{"test", "-vet=off", "-count=1", "-failfast", "-timeout", r.timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return r.call(ctx, directory, append(args, testsOf(directory)...)...)
}

// testsOf names the packages, as seen from a directory, whose tests count for the one in it: itself and, if it is
// internal, the package that it is internal to. What is split off there is mostly tested through that package.
func testsOf(directory string) []string {
	self := "/" + path.Clean(filepath.ToSlash(directory))
	if i := strings.LastIndex(self, "/internal/"); i > 0 {
		return []string{".", strings.TrimSuffix(strings.Repeat("../", strings.Count(self[i:], "/")), "/")}
	}
	return []string{"."}
}

// call returns a call of the go command in a directory, which may be of another module than the current one. When ctx
// ends, the command's whole process group is killed.
func (r runner) call(ctx context.Context, directory string, args ...string) *exec.Cmd {
	args = append(r.command[1:len(r.command):len(r.command)], args...)
	c := exec.CommandContext(ctx, r.command[0], args...) //nolint:gosec // the operator's own command
	c.Dir, c.SysProcAttr = directory, &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}
