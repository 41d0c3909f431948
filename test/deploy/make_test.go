package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// root is the root of the source.
const root = "../.."

// stamp is what is built into a release, the same for each that the tests make: they may run where nothing is committed.
var stamp = []string{"VERSION=v0.0.0-test", "COMMIT=0123456789abcdef0123456789abcdef01234567", "TREESTATE=clean", "DATE=2026-01-31T00:00:00Z"}

// scratch is removed when all tests have ended.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "regent-deploy-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		// What runs from the image is another user, and must get there.
		if err := os.Chmod(scratch, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// makeIn runs make in a copy of the source, for this machine's architecture alone, and returns the output's directory.
func makeIn(source, target, out string) error {
	args := append([]string{"-s", "-C", source, target, "OUT=" + out, "ARCHES=" + runtime.GOARCH}, stamp...)
	if got, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", target, err, got)
	}
	return nil
}

// builtStatic builds the program once for all tests.
var builtStatic = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "out")
	return filepath.Join(out, "linux-"+runtime.GOARCH, "regent"), makeIn(root, "static", out)
})

// static returns the program that is in the image and in the archive.
func static(t *testing.T) string {
	t.Helper()
	file, err := builtStatic()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// elsewhere is a copy of the source at another place, in which the same was made.
var elsewhere = sync.OnceValues(func() (out string, err error) {
	source, out := filepath.Join(scratch, "elsewhere"), filepath.Join(scratch, "out-elsewhere")
	for _, name := range []string{"Makefile", "go.mod", "go.sum", "LICENSE", "README.md", "cmd", "pkg", "deploy", "docs", "test/tools/pack"} {
		to := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if got, err := exec.Command("cp", "-R", filepath.Join(root, name), to).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot copy %s: %w\n%s", name, err, got)
		}
	}
	for _, target := range []string{"image", "dist"} {
		if err := makeIn(source, target, out); err != nil {
			return "", err
		}
	}
	return out, nil
})

// made runs make in this source and in a copy at another place, and returns both outputs.
func made(t *testing.T, target string) (here, there string) {
	t.Helper()
	static(t) // its output is used again
	here = filepath.Join(scratch, "out")
	if err := makeIn(root, target, here); err != nil {
		t.Fatal(err)
	}
	there, err := elsewhere()
	if err != nil {
		t.Fatal(err)
	}
	return here, there
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(x) == 0 || string(x) != string(y) {
		t.Errorf("%s and %s differ: %d and %d bytes", a, b, len(x), len(y))
	}
}
