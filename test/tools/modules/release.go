package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// release makes the commit and the tags of a version, of what is committed. The commit is beside the branch, and only
// tags name it: on the branch the modules go on to find each other by directory. Nothing is pushed.
func release(ctx context.Context, o options) error {
	if !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version || semver.Build(o.version) != "" || semver.Major(o.version) > "v1" {
		return fmt.Errorf("-version %q: want one such as v0.2.0 or v0.2.0-rc.1 (from v2 on, the paths of the modules would have to say so)", o.version)
	}
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	git, err := checkout(ctx, root, scratch)
	if err != nil {
		return err
	}
	proxy := filepath.Join(scratch, "proxy")
	t, err := prepare(ctx, git.directory, o.version, proxy)
	if err != nil {
		return err
	}
	if err := checkRelease(ctx, scratch, proxy, t, o); err != nil {
		return err
	}
	commit, err := commitAll(ctx, git, o.version)
	if err != nil {
		return err
	}
	return tagAll(ctx, place{directory: root}, t, o.version, commit)
}

// checkout writes the files of the last commit into a directory, and returns how git is called there. Changes that are
// not committed would be no part of the release.
func checkout(ctx context.Context, root, scratch string) (place, error) {
	here := place{directory: root}
	if changed, err := here.ask(ctx, "git", "status", "--porcelain"); err != nil || changed != "" {
		return place{}, errors.Join(fmt.Errorf("commit first what is to be released:\n%s", changed), err)
	}
	repository, err := here.ask(ctx, "git", "rev-parse", "--absolute-git-dir")
	if err != nil {
		return place{}, err
	}
	source := filepath.Join(scratch, "source")
	git := place{directory: source, env: []string{"GIT_DIR=" + repository, "GIT_WORK_TREE=" + source, "GIT_INDEX_FILE=" + filepath.Join(scratch, "index")}}
	if err := os.Mkdir(source, 0o700); err != nil {
		return place{}, err
	}
	if err := git.quiet(ctx, "git", "read-tree", "HEAD"); err != nil {
		return place{}, err
	}
	return git, git.quiet(ctx, "git", "checkout-index", "--all")
}

// commitAll makes a commit of the directory behind the branch's last.
func commitAll(ctx context.Context, git place, version string) (string, error) {
	if err := git.quiet(ctx, "git", "add", "--all", "."); err != nil {
		return "", err
	}
	written, err := git.ask(ctx, "git", "write-tree")
	if err != nil {
		return "", err
	}
	return git.ask(ctx, "git", "commit-tree", "-p", "HEAD", "-m", "release "+version, written)
}

// tagAll tags the commit for each module, or not at all.
func tagAll(ctx context.Context, git place, t tree, version, commit string) error {
	order, err := t.released()
	if err != nil {
		return err
	}
	var tags []string
	for _, m := range order {
		tag := m.tag(version)
		if err := git.quiet(ctx, "git", "tag", tag, commit); err != nil {
			for _, made := range tags {
				err = errors.Join(err, git.quiet(ctx, "git", "tag", "--delete", made))
			}
			return err
		}
		tags = append(tags, tag)
	}
	fmt.Printf("%s is tagged as %s. Push all tags at once, for they need each other:\n  git push --atomic origin %s\n", commit, version, strings.Join(tags, " "))
	return nil
}
