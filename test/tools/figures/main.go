// Command figures says how old the figures of the docs are: it reads which commits pages name, and prints those that
// are older than the newest release, or, where there is none, how many commits each is behind. `make figures` runs it.
// It finds nothing wrong: who measures anew decides what is too old.
//
//	go run ./test/tools/figures <page>...
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: figures <page>...")
		os.Exit(2)
	}
	if err := report(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report prints the old commits of pages, page by page.
func report(ctx context.Context, pages []string) error {
	release, _ := git(ctx, "describe", "--tags", "--abbrev=0", "--match", "v*") // it fails if there is none
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("cannot read what it names: %w", err)
		}
		for _, commit := range commits(string(content)) {
			if _, err := git(ctx, "cat-file", "-e", commit.name+"^{commit}"); err != nil {
				continue // of another repository, or none
			}
			if release != "" {
				if _, err := git(ctx, "merge-base", "--is-ancestor", release+"^{commit}", commit.name); err == nil {
					continue
				}
			}
			date, err := git(ctx, "show", "-s", "--format=%cs", commit.name)
			if err != nil {
				return err
			}
			behind, err := git(ctx, "rev-list", "--count", commit.name+"..HEAD")
			if err != nil {
				return err
			}
			older := ""
			if release != "" {
				older = ", older than " + release
			}
			fmt.Printf("%s:%d: %s of %s, %s commits behind%s\n", page, commit.line, commit.name, date, behind, older)
		}
	}
	return nil
}

// commit is the name of one, and the line on which a page has it first.
type commit struct {
	name string
	line int
}

var abbreviation = regexp.MustCompile(`\b[0-9a-f]{7,12}\b`)

// commits returns what may be the names of commits, numbers and words too, in the order of their lines: git knows which
// it has.
func commits(page string) (out []commit) {
	for n, line := range strings.Split(page, "\n") {
		for _, name := range abbreviation.FindAllString(line, -1) {
			if !slices.ContainsFunc(out, func(c commit) bool { return c.name == name }) {
				out = append(out, commit{name, n + 1})
			}
		}
	}
	return out
}

func git(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "git", args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
