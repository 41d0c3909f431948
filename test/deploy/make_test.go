package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// root is the root of the source.
const root = "../.."

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

// A terminal shows what make help says, line by line.
func TestHelpOfMakeFitsATerminal(t *testing.T) {
	said, err := exec.Command("make", "-s", "-C", root, "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(said), "\n"), "\n")
	if len(lines) < 30 {
		t.Errorf("only %d lines", len(lines))
	}
	for _, line := range lines {
		if len(line) > 120 || len(line) < 26 || line[25] != ' ' || !strings.HasPrefix(line, "  ") {
			t.Errorf("%d columns, or out of its column: %s", len(line), line)
		}
	}
}

// What `make bin/packed` makes, for this machine's architecture alone: of a version that is none, so that it is the
// same wherever nothing is committed, and once more from a copy of the source at another place.
const (
	packedVersion = "v0.0.0-test"
	packedCommit  = "0123456789abcdef0123456789abcdef01234567"
)

// packed makes what the tests look at, unless make test has.
var packed = sync.OnceValues(func() (string, error) {
	at, err := filepath.Abs(filepath.Join(root, "bin", "packed"))
	if err != nil || os.Getenv("REGENT_TESTS_BUILT") != "" {
		return at, err
	}
	if said, err := exec.Command("make", "-s", "-C", root, "bin/packed", "bin/etcd").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make bin/packed bin/etcd: %w\n%s", err, said)
	}
	return at, nil
})

// directories returns the directories of what was made here, and elsewhere.
func directories(t *testing.T) (here, there string) {
	t.Helper()
	at, err := packed()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(at, "here"), filepath.Join(at, "there")
}

// static returns the program that is in the image and in the archive.
func static(t *testing.T) string {
	t.Helper()
	here, _ := directories(t)
	return filepath.Join(here, "linux-"+runtime.GOARCH, "regent")
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
