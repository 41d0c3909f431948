package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// withoutCommented returns the files without those Go files that differ from a commit in comments and layout only: what
// they do is proved already.
func withoutCommented(ctx context.Context, root, base string, files []string) ([]string, error) {
	if base == "" {
		return files, nil
	}
	before, err := contents(ctx, root, base, files)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(files, func(file string) bool {
		now, err := os.ReadFile(filepath.Join(root, file))
		return err == nil && before[file] != nil && sameCode(before[file], now)
	}), nil
}

// contents returns what Go files were at a commit. Those that it did not have are left out.
func contents(ctx context.Context, root, base string, files []string) (map[string][]byte, error) {
	var names []string
	var input bytes.Buffer
	for _, file := range files {
		if strings.HasSuffix(file, ".go") {
			names = append(names, file)
			fmt.Fprintf(&input, "%s:%s\n", base, file)
		}
	}
	command := exec.CommandContext(ctx, "git", "cat-file", "--batch")
	command.Dir, command.Stdin = root, &input
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	all := map[string][]byte{}
	for answers, n := bufio.NewReader(bytes.NewReader(out)), 0; n < len(names); n++ {
		head, err := answers.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("git cat-file about %s: %w", names[n], err)
		}
		var hash, kind string
		var size int
		if _, err := fmt.Sscan(head, &hash, &kind, &size); err != nil {
			continue // it says that the file is missing
		}
		content := make([]byte, size+1) // and a line break
		if _, err := io.ReadFull(answers, content); err != nil {
			return nil, fmt.Errorf("git cat-file about %s: %w", names[n], err)
		}
		all[names[n]] = content[:size]
	}
	return all, nil
}

// sameCode reports whether two Go files have the same tokens. Directives are comments that do something, so that files
// which have any are the same only byte for byte.
func sameCode(a, b []byte) bool {
	if bytes.Contains(a, []byte("//go:")) || bytes.Contains(b, []byte("//go:")) {
		return bytes.Equal(a, b)
	}
	return slices.Equal(tokens(a), tokens(b))
}

// tokens returns the code of a Go file.
func tokens(source []byte) (all []string) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", -1, len(source)), source, nil, 0)
	for {
		_, kind, text := s.Scan()
		if kind == token.EOF {
			return all
		}
		if kind == token.SEMICOLON { // a line break is one, too
			text = ";"
		}
		all = append(all, kind.String()+" "+text)
	}
}
