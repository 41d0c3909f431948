package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// distribution is what is handed out of a release.
type distribution struct {
	version, commit, date string
	out                   string // a directory
}

// checksums is the file that lists what is handed out with the digest of each, as sha256sum reads it.
const checksums = "SHA256SUMS"

// distribute builds what is handed out of the release's own commit, where the libraries have its version, and not of
// the branch: so bills of materials name what people can look up.
func distribute(ctx context.Context, git place, scratch, proxy string, t tree, d distribution) error {
	env, err := environment(ctx, scratch, proxy, t)
	if err != nil {
		return err
	}
	built := filepath.Join(scratch, "dist")
	fmt.Printf("make dist image VERSION=%s\n", d.version)
	if err := (place{directory: git.directory, env: env}).quiet(ctx, "make", "--no-print-directory", "dist", "image", "OUT="+built,
		"VERSION="+d.version, "COMMIT="+d.commit, "TREESTATE=clean", "DATE="+d.date); err != nil {
		return err
	}
	files, err := os.ReadDir(built)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.out, 0o755); err != nil { //nolint:gosec // what is in it is public
		return err
	}
	var sums strings.Builder
	for _, file := range files {
		if !file.Type().IsRegular() || file.Name() == checksums {
			continue
		}
		content, err := os.ReadFile(filepath.Join(built, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), file.Name())
		if err := os.WriteFile(filepath.Join(d.out, file.Name()), content, 0o644); err != nil { //nolint:gosec // it is public
			return err
		}
	}
	fmt.Printf("what is handed out is in %s:\n%s", d.out, sums.String())
	return os.WriteFile(filepath.Join(d.out, checksums), []byte(sums.String()), 0o644) //nolint:gosec // it is public
}
