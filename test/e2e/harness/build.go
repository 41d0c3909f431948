package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/regent-project/regent/test/built"
)

// Binary returns the path of bin/<name>.
func Binary(name string) string { return built.Path(name) }

// Program returns the path of a program of bin, which is built if need be.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := built.Program(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Build makes sure that what the scenarios run is built. Call it from TestMain.
func Build() error { return built.Programs("regent", "etcd", "kubectl") }

// BuildGo builds a main package of this module into directory, with further flags of go build, and returns the binary's
// path.
func BuildGo(directory, pkg string, flags ...string) (string, error) {
	return buildIn(built.File("."), directory, filepath.Base(pkg), pkg, flags...)
}

// BuildModule builds ./cmd of a module of its own, whose directory here is given, and returns the binary's path. The
// binary has the directory's name.
func BuildModule(directory, module string) (string, error) {
	return buildIn(built.File(module), directory, filepath.Base(module), "./cmd")
}

func buildIn(module, directory, name, pkg string, flags ...string) (string, error) {
	binary := filepath.Join(directory, name)
	build := exec.Command("go", append(append([]string{"build", "-trimpath", "-o", binary}, flags...), pkg)...)
	build.Dir, build.Stdout, build.Stderr = module, os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("cannot build %s of %s: %w", pkg, module, err)
	}
	return binary, nil
}

// File is the path of a file of the repository.
func File(name string) string { return built.File(name) }

// commandTime is how long a command may take. Only a hang is longer.
const commandTime = 5 * time.Minute

// Command is exec.Command for bin/<name>. A command that hangs is killed, so that its scenario fails and says what it
// waited for.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return command(t, Binary(name), args...)
}

func command(t testing.TB, binary string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, binary, args...)
}
