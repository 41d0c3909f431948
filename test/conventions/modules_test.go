package conventions

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goMod is what `go mod edit -json` says of a module.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path string }
		New struct{ Path string }
	}
}

// modules returns the directories of all modules, the root's first.
func modules() (directories []string) {
	_ = filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || len(entry.Name()) > 2 && entry.Name()[0] == '.'):
			return filepath.SkipDir
		case entry.Name() == "go.mod":
			directories = append(directories, filepath.Dir(name))
		}
		return nil
	})
	return directories
}

// libraries returns the directories of the modules that programs can take without the server.
func libraries() (directories []string) {
	for _, m := range modules() {
		if strings.HasPrefix(m, filepath.Join("..", "..", "pkg")) {
			directories = append(directories, m)
		}
	}
	return directories
}

func readModule(t *testing.T, directory string) (m goMod) {
	t.Helper()
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = directory
	out, err := edit.Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatalf("%s/go.mod: %v", directory, err)
	}
	return m
}

// heavy are modules that what is required with a library may not bring, by the library's path below this repository's.
// The first that matches counts. For a library that is added, say here what it keeps out.
var heavy = []struct {
	library string
	modules *regexp.Regexp
}{
	{"pkg/election/etcdfence", regexp.MustCompile(`^(github.com/regent-project/regent|github.com/kcp-dev/sdk|sigs.k8s.io/controller-runtime)$`)},
	{"pkg/election/mcr", regexp.MustCompile(`^(github.com/regent-project/regent|github.com/kcp-dev/sdk|k8s.io/apiserver|go.etcd.io/.*)$`)},
	{"pkg/election/perterm", regexp.MustCompile(`^(github.com/regent-project/regent|github.com/kcp-dev/sdk|k8s.io/apiserver|go.etcd.io/.*)$`)},
	{"pkg/regenttest", regexp.MustCompile(`^(github.com/regent-project/regent|github.com/regent-project/regent/pkg/election.*|github.com/kcp-dev/.*|k8s.io/apiserver|go.etcd.io/.*|sigs.k8s.io/controller-runtime)$`)},
	{"pkg/election/metrics", regexp.MustCompile(`^(k8s.io/.*|sigs.k8s.io/.*|github.com/regent-project/regent|github.com/kcp-dev/.*|go.etcd.io/.*)$`)},
	{"pkg/election", regexp.MustCompile(`^(github.com/regent-project/regent|github.com/kcp-dev/sdk|github.com/prometheus/.*|k8s.io/component-base|k8s.io/apiserver|k8s.io/apiextensions-apiserver|go.etcd.io/.*|sigs.k8s.io/controller-runtime)$`)},
}

func TestALibraryDoesNotBringTheServer(t *testing.T) {
	found := libraries()
	if len(found) == 0 {
		t.Fatal("no module below pkg")
	}
	for _, directory := range found {
		m := readModule(t, directory)
		short := strings.TrimPrefix(m.Module.Path, module)
		if want := filepath.ToSlash(strings.TrimPrefix(directory, filepath.Join("..", "..")+string(filepath.Separator))); short != want {
			t.Errorf("the module in %s is %s: nobody could require it by its path", want, m.Module.Path)
		}
		listed := false
		for _, h := range heavy {
			if h.library != short {
				continue
			}
			listed = true
			for _, r := range m.Require {
				if h.modules.MatchString(r.Path) {
					t.Errorf("%s requires %s, so each program that takes it has it in its graph", short, r.Path)
				}
			}
		}
		if !listed {
			t.Errorf("say in this test what %s keeps out", short)
		}
	}
}

// A library requires the oldest Kubernetes that it can do with, because Go gives a program the newest that anything in
// it requires.
func TestTheElectionRaisesNobodysKubernetes(t *testing.T) {
	const floor = "v0.35.0"
	for _, r := range readModule(t, "../../pkg/election").Require {
		if strings.HasPrefix(r.Path, "k8s.io/") && strings.HasPrefix(r.Version, "v0.") && !strings.HasPrefix(r.Version, "v0.0.0-") && r.Version != floor {
			t.Errorf("pkg/election requires %s %s, want %s", r.Path, r.Version, floor)
		}
	}
}

// In the repository modules are built from its directories, whichever version a require names.
func TestModulesFindEachOtherInTheRepository(t *testing.T) {
	for _, directory := range modules() {
		m, replaced := readModule(t, directory), map[string]string{}
		for _, r := range m.Replace {
			replaced[r.Old.Path] = r.New.Path
		}
		for _, r := range m.Require {
			if r.Path+"/" != module && !strings.HasPrefix(r.Path, module) {
				continue
			}
			to, err := filepath.Rel(directory, filepath.Join("..", "..", strings.TrimPrefix(r.Path+"/", module)))
			if err != nil {
				t.Fatal(err)
			}
			if got := replaced[r.Path]; got == "" || filepath.Clean(got) != to {
				t.Errorf("%s/go.mod replaces %s by %q, want %s", directory, r.Path, got, filepath.ToSlash(to))
			}
		}
	}
}

// A release has no property tests, so that nobody has their library in the graph (docs/RELEASING.md). It knows them by
// their file's name.
func TestPropertyTestsOfLibrariesHaveFilesOfTheirOwn(t *testing.T) {
	found := 0
	for _, directory := range libraries() {
		err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || !bytes.Contains(readFile(t, name), []byte("\t\"pgregory.net/rapid\"\n")) {
				return err
			}
			found++
			if !strings.HasSuffix(name, "property_test.go") {
				t.Errorf("%s imports pgregory.net/rapid: move what needs it to a file that ends with property_test.go", name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no property test was found: this test shows nothing")
	}
}
