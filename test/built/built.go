// Package built tells tests where the programs are that make has built for them: in bin, below the root.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Variable says, if it is set, that all programs are built already: make test builds them before it runs any test.
// Tests that are run by go test ask make for those that they need, so that none is stale.
const Variable = "REGENT_TESTS_BUILT"

// root is the root of the source: the directory above this one that has the server. A test runs in the directory of its
// package. What the compiler knows of places is not used, since -trimpath leaves it out.
var root = sync.OnceValues(func() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the root of the source: %w", err)
	}
	for directory := at; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, "cmd", "server", "main.go")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("%s is outside of the source, and tests find their programs from there: run them in the directory of their package", at)
		}
	}
})

// File returns the path of a file of the source. It panics outside of the source, where no test runs.
func File(name string) string {
	at, err := root()
	if err != nil {
		panic(err)
	}
	return filepath.Join(at, name)
}

// Path returns the path of bin/<name>.
func Path(name string) string { return File(filepath.Join("bin", name)) }

// Programs makes sure that programs of bin are built and up to date. Each is a target of the Makefile: bin/<name>.
func Programs(names ...string) error {
	var targets []string
	for _, name := range names {
		if _, err := os.Stat(Path(name)); err == nil && os.Getenv(Variable) != "" {
			continue
		}
		targets = append(targets, "bin/"+name)
	}
	if len(targets) == 0 {
		return nil
	}
	// Tests of several packages may come at once, and make does not know of others.
	return locked(func() error {
		command := exec.Command("make", append([]string{"-s", "-C", File(".")}, targets...)...)
		if said, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %v: %w\n%s", names, err, said)
		}
		return nil
	})
}

// Program makes sure that a program of bin is built and up to date, and returns its path.
func Program(name string) (string, error) { return Path(name), Programs(name) }
