package regenttest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The program is that of the library's version, so the version has to be known where the library is a dependency.
func TestTheVersionOfTheLibraryIsKnownToTheModulesOfTests(t *testing.T) {
	path := reflect.TypeFor[Server]().PkgPath()
	for _, c := range []struct {
		name, also string // of go.mod
		version    string
		wrong      string // what the error says
	}{
		{"a release", "", "v0.9.9", ""},
		{"another module", "replace " + path + " => example.com/fork v1.0.0", "", "is replaced by another module"},
		{"a directory", "replace " + path + " => ./pkg/regenttest", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy := t.TempDir()
			publish(t, proxy, path, "v0.9.9")
			publish(t, proxy, "example.com/fork", "v1.0.0")
			for variable, value := range map[string]string{
				"GOPROXY": "file://" + proxy, "GONOSUMDB": "*", "GOMODCACHE": t.TempDir(), "GOFLAGS": "-mod=mod -modcacherw", "GOWORK": "off",
			} {
				t.Setenv(variable, value)
			}
			home := t.TempDir()
			write := func(name, content string) {
				must(t, errors.Join(os.MkdirAll(filepath.Join(home, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(home, name), []byte(content), 0o600)))
			}
			write("go.mod", "module example.com/user\n\ngo 1.26\n\nrequire "+path+" v0.9.9\n\n"+c.also+"\n")
			write("pkg/regenttest/go.mod", "module "+path+"\n\ngo 1.26\n")
			t.Chdir(home)
			l, err := thisLibrary(t.Context())
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Fatalf("it says %v", err)
			}
			if err == nil && l.version != c.version {
				t.Errorf("its version is %q, want %q", l.version, c.version)
			}
			if c.name == "a directory" {
				if _, err := l.fromDirectory(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "which is in no repository with cmd/") {
					t.Errorf("without a server beside it: %v", err)
				}
			}
		})
	}
}

// publish puts the go.mod of a version on a proxy in a directory.
func publish(t *testing.T, proxy, path, version string) {
	t.Helper()
	directory := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	must(t, errors.Join(
		os.MkdirAll(directory, 0o700),
		os.WriteFile(filepath.Join(directory, version+".info"), []byte(`{"Version":"`+version+`"}`), 0o600),
		os.WriteFile(filepath.Join(directory, version+".mod"), []byte("module "+path+"\n\ngo 1.26\n"), 0o600),
	))
}

// A test without the go command, or in no module, is told what to set.
func TestWhereNoProgramIsToBeFoundTheErrorSaysWhatToDo(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(variable, "")
	t.Setenv("GOWORK", "off") // a workspace would be where this module is to be found
	for _, path := range []string{os.Getenv("PATH"), t.TempDir()} {
		t.Setenv("PATH", path)
		_, err := (&once{}).of(t.Context())
		if err == nil || !strings.Contains(err.Error(), "there is no program to start: set $REGENT to the file of one, or give regenttest.Program: ") {
			t.Errorf("it says %v", err)
		}
	}
}

// What cannot be built is told with the compiler's words, and nothing is left that another test would take for it.
func TestAProgramThatCannotBeBuiltIsExplained(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/server\n\ngo 1.26\n", "cmd/server/main.go": "package main\n\nfunc main() { nonsense() }\n",
	} {
		file := filepath.Join(root, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)))
	}
	cache := t.TempDir()
	l := library{directory: filepath.Join(root, "pkg", "regenttest")}
	file, err := l.fromDirectory(t.Context(), cache)
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") || !strings.Contains(err.Error(), "go build -C "+root+" ./cmd/server") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", file, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("there is no time"))
	if _, err := l.fromDirectory(ctx, cache); err == nil || !strings.Contains(err.Error(), "give go test -timeout=30m: there is no time") {
		t.Errorf("out of time it says %v", err)
	}
}
