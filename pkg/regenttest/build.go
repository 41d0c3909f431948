package regenttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// entries are the packages of which the program is built: the first one that a version has.
var entries = []string{"cmd/regent", "cmd/server"}

// withoutDebug leaves out what only debuggers read: linking takes half of the time.
const withoutDebug = "-ldflags=-s -w"

// install builds the program of the library's version, as go install does, and moves it to a file.
func (l library) install(ctx context.Context, file string) error {
	return locked(filepath.Dir(file), func() error {
		if _, err := os.Stat(file); err == nil {
			return nil // another process has built it meanwhile
		}
		bin, err := os.MkdirTemp(filepath.Dir(file), "bin-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(bin) }()
		var failed error
		for _, entry := range entries {
			of := l.server + "/" + entry + "@" + l.version
			say("building %s once, which takes minutes if nothing is compiled yet", of)
			install := exec.CommandContext(ctx, "go", "install", withoutDebug, of) //nolint:gosec // the version that the test's go.mod names
			install.Env = append(environment(), "GOBIN="+bin)
			if err := outcome(ctx, install, "go install "+of); err != nil {
				failed = errors.Join(failed, err)
				if ctx.Err() != nil || !strings.Contains(err.Error(), "does not contain package") {
					return failed
				}
				continue
			}
			return os.Rename(filepath.Join(bin, filepath.Base(entry)), file)
		}
		return failed
	})
}

// fromDirectory builds the program of the repository in which the library is. Nothing is built if nothing has changed.
func (l library) fromDirectory(ctx context.Context, cache string) (file string, err error) {
	root := filepath.Join(l.directory, "..", "..")
	entry := slices.IndexFunc(entries, func(entry string) bool { _, err := os.Stat(filepath.Join(root, entry, "main.go")); return err == nil })
	if entry < 0 {
		return "", fmt.Errorf("regenttest is replaced by %s, which is in no repository with %s", l.directory, strings.Join(entries, " or "))
	}
	sum := sha256.Sum256([]byte(root))
	file = filepath.Join(cache, "directory-"+hex.EncodeToString(sum[:8]), "regent")
	return file, locked(filepath.Dir(file), func() error {
		if _, err := os.Stat(file); err != nil {
			say("building %s of %s once, which takes minutes if nothing is compiled yet", entries[entry], root)
		}
		build := exec.CommandContext(ctx, "go", "build", "-C", root, "-trimpath", "-buildvcs=false", withoutDebug, "-o", file, "./"+entries[entry]) //nolint:gosec // where the library is
		build.Env = environment()
		return outcome(ctx, build, "go build -C "+root+" ./"+entries[entry])
	})
}

// environment is that of a build which has nothing to do with the test's module.
func environment() []string {
	flags := slices.DeleteFunc(strings.Fields(os.Getenv("GOFLAGS")), func(flag string) bool {
		return strings.HasPrefix(strings.TrimLeft(flag, "-"), "mod=") || strings.HasPrefix(strings.TrimLeft(flag, "-"), "modfile=")
	})
	return append(os.Environ(), "GOFLAGS="+strings.Join(flags, " "), "GOWORK=off", "CGO_ENABLED=0")
}

// outcome runs a command of a build. Its error has what the command says, and what to do.
func outcome(ctx context.Context, cmd *exec.Cmd, what string) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s has not ended before the test's deadline: run it by hand, or give go test -timeout=30m: %w", what, context.Cause(ctx))
	default:
		return fmt.Errorf("%s: %w\n%s", what, err, lastLines(said.String(), 20))
	}
}

// explained is an error of a command with what it has said.
func explained(err error) error {
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

// locked does something in a directory while no other process does.
func locked(directory string, do func() error) error {
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // no secret
		return err
	}
	lock, err := os.OpenFile(filepath.Join(directory, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // and with it goes the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cannot lock %s: %w", directory, err)
	}
	return do()
}

// say tells the user why nothing happens. go test shows it at once with -v, or without a list of packages.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "regenttest: "+format+"\n", args...) }
