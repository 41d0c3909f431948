package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// release makes the commit and the tags of a version, and what is handed out of it. It is made of the commit that is
// recorded for the version, or of the last one, which has to be recorded then: the same commit gives the same release.
// The release's own commit is beside the branch, and only tags name it: on the branch the modules go on to find each
// other by directory. Nothing is pushed.
func release(ctx context.Context, o options) error {
	if !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version || semver.Build(o.version) != "" || semver.Major(o.version) > "v1" {
		return fmt.Errorf("-version %q: want one such as v0.2.0 or v0.2.0-rc.1 (from v2 on, the paths of the modules would have to say so)", o.version)
	}
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	out, err := filepath.Abs(filepath.Join(o.out, o.version))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	from, err := sourceOf(ctx, root, o.version)
	if err != nil {
		return err
	}
	git, err := checkout(ctx, root, scratch, from)
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
	commit, err := commitAll(ctx, git, o.version, from)
	if err != nil {
		return err
	}
	if err := distribute(ctx, git, scratch, proxy, t, distribution{o.version, commit, from.date, out}); err != nil {
		return err
	}
	if err := tagAll(ctx, place{directory: root}, t, o.version, commit); err != nil {
		return err
	}
	if !from.recorded {
		fmt.Printf("Record it, for tags may not travel: add this line to %s, and commit it:\n%s %s\n", record, o.version, from.commit)
	}
	return nil
}

// source is the commit that a release is made of.
type source struct {
	commit   string
	recorded bool
	made     []string // by whom and when, as git takes it from the environment
	date     string   // when it was committed, as 2026-01-31T00:00:00Z
}

// sourceOf returns the commit that is recorded for a version, or else the last one. What is not committed would be no
// part of the latter.
func sourceOf(ctx context.Context, root, version string) (source, error) {
	here := place{directory: root}
	commit, err := recorded(root, version)
	if err != nil {
		return source{}, err
	}
	s := source{commit: commit, recorded: commit != ""}
	if !s.recorded {
		if changed, err := here.ask(ctx, "git", "status", "--porcelain"); err != nil || changed != "" {
			return source{}, errors.Join(fmt.Errorf("commit first what is to be released:\n%s", changed), err)
		}
		s.commit = "HEAD"
	}
	told, err := here.ask(ctx, "git", "log", "-1", "--format=%H%n%an%n%ae%n%aI%n%cn%n%ce%n%cI", s.commit)
	if err != nil {
		return source{}, fmt.Errorf("%s of %s is not in this repository, fetch the whole history: %w", s.commit, version, err)
	}
	lines := strings.Split(told, "\n")
	s.commit = lines[0]
	for i, name := range []string{"AUTHOR_NAME", "AUTHOR_EMAIL", "AUTHOR_DATE", "COMMITTER_NAME", "COMMITTER_EMAIL", "COMMITTER_DATE"} {
		s.made = append(s.made, "GIT_"+name+"="+lines[i+1])
	}
	committed, err := time.Parse(time.RFC3339, lines[6])
	s.date = committed.UTC().Format(time.RFC3339)
	return s, err
}

// checkout writes the files of a commit into a directory, and returns how git is called there.
func checkout(ctx context.Context, root, scratch string, from source) (place, error) {
	repository, err := place{directory: root}.ask(ctx, "git", "rev-parse", "--absolute-git-dir")
	if err != nil {
		return place{}, err
	}
	files := filepath.Join(scratch, "source")
	git := place{directory: files, env: []string{"GIT_DIR=" + repository, "GIT_WORK_TREE=" + files, "GIT_INDEX_FILE=" + filepath.Join(scratch, "index")}}
	if err := os.Mkdir(files, 0o700); err != nil {
		return place{}, err
	}
	if err := git.quiet(ctx, "git", "read-tree", from.commit); err != nil {
		return place{}, err
	}
	return git, git.quiet(ctx, "git", "checkout-index", "--all")
}

// commitAll makes a commit of the directory behind the one that it was made of. Whoever makes it, and whenever, it is
// the same commit.
func commitAll(ctx context.Context, git place, version string, from source) (string, error) {
	if err := git.quiet(ctx, "git", "add", "--all", "."); err != nil {
		return "", err
	}
	written, err := git.ask(ctx, "git", "write-tree")
	if err != nil {
		return "", err
	}
	git.env = append(slices.Clone(git.env), from.made...)
	return git.ask(ctx, "git", "commit-tree", "--no-gpg-sign", "-p", from.commit, "-m", "release "+version, written)
}

// tagAll tags the commit for each module, or not at all. A tag of the same commit may be there already.
func tagAll(ctx context.Context, git place, t tree, version, commit string) error {
	order, err := t.released()
	if err != nil {
		return err
	}
	var tags, made []string
	for _, m := range order {
		tag := m.tag(version)
		tags = append(tags, tag)
		if there, err := git.ask(ctx, "git", "rev-parse", "--verify", "--quiet", "refs/tags/"+tag+"^{commit}"); err == nil && there == commit {
			continue
		}
		if err := git.quiet(ctx, "git", "tag", tag, commit); err != nil {
			for _, tag := range made {
				err = errors.Join(err, git.quiet(ctx, "git", "tag", "--delete", tag))
			}
			return fmt.Errorf("%s is another commit: %w", tag, err)
		}
		made = append(made, tag)
	}
	fmt.Printf("%s is tagged as %s. Push all tags at once, for they need each other:\n  git push --atomic origin %s\n", commit, version, strings.Join(tags, " "))
	return nil
}
