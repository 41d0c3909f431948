package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// record is the file that says which commit is which release: a line each, as "v0.1.0 <commit>", the oldest first.
const record = "test/releases/releases.txt"

// recorded returns the commit of a version that was released; empty if it was not. Lines that begin with # are
// comments.
func recorded(root, version string) (commit string, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(record)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	before := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 || semver.Canonical(fields[0]) != fields[0] || len(fields[1]) != 40 {
			return "", fmt.Errorf("%s: %q: want a version and its whole commit, as in v0.1.0 <40 hexadecimal digits>", record, line)
		}
		if before != "" && semver.Compare(before, fields[0]) >= 0 {
			return "", fmt.Errorf("%s: %s is not newer than %s in the line before", record, fields[0], before)
		}
		if before = fields[0]; before == version {
			commit = fields[1]
		}
	}
	return commit, nil
}
