package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// pack writes a version of a module as a module proxy serves it, and returns the lines of a go.sum for it.
func pack(m *mod, version, proxy string) (sums []string, err error) {
	path, err := module.EscapePath(m.path())
	if err != nil {
		return nil, err
	}
	directory := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // a proxy's files are public
		return nil, err
	}
	name := filepath.Join(directory, version)
	archive, err := os.Create(name + ".zip")
	if err != nil {
		return nil, err
	}
	err = zip.CreateFromDir(archive, module.Version{Path: m.path(), Version: version}, m.directory)
	if err := errors.Join(err, archive.Close()); err != nil {
		return nil, fmt.Errorf("cannot pack %s: %w", m.path(), err)
	}
	if err := copyFile(filepath.Join(m.directory, "go.mod"), name+".mod", 0o644); err != nil {
		return nil, err
	}
	// The moment is of no meaning to Go: what is chosen by time is pseudo-versions alone.
	if err := os.WriteFile(name+".info", fmt.Appendf(nil, "{\"Version\":%q,\"Time\":\"2000-01-01T00:00:00Z\"}\n", version), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(directory, "list"), []byte(version+"\n"), 0o600); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(name+".zip", dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	alone, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(name + ".mod") })
	if err != nil {
		return nil, err
	}
	return []string{m.path() + " " + version + " " + whole + "\n", m.path() + " " + version + "/go.mod " + alone + "\n"}, nil
}

// compareSums orders lines as the go command orders those of a go.sum.
func compareSums(a, b string) int {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != 3 || len(y) != 3 {
		return strings.Compare(a, b)
	}
	xv, xf, _ := strings.Cut(x[1], "/")
	yv, yf, _ := strings.Cut(y[1], "/")
	return cmp.Or(strings.Compare(x[0], y[0]), semver.Compare(xv, yv), strings.Compare(xf, yf))
}
