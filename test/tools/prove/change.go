package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A commit is one of the history, by its date.
type commit struct {
	hash string
	date time.Time
}

const (
	// changeWithin is how long somebody works on a change at most, as far as its commits show. Git does not say
	// where one ends: in a clone of the branch that it landed on there is nothing between it and those before it.
	changeWithin = 4 * time.Hour
	// changePause is how long a pause between commits is, after which another change begins.
	changePause = time.Hour
)

// turnOf counts the changes that a history is made of, the oldest commit first. It never takes a count back: what is
// added to the history does not change how it began.
func turnOf(history []commit) int {
	turn := 0
	var began, last time.Time
	for _, c := range history {
		if turn == 0 || c.date.Sub(began) > changeWithin || c.date.Sub(last) > changePause {
			turn++
			began = c.date
		}
		last = c.date
	}
	return turn
}

// baseOf returns the last commit that is no part of the change at the end of a history, the oldest first: one that is
// older than the last by more than a change takes. It may be too old, and then more is proved than has to be. "" means
// that all there is belongs to it.
func baseOf(history []commit) string {
	if len(history) == 0 {
		return ""
	}
	end := history[len(history)-1].date
	for _, c := range slices.Backward(history) {
		if end.Sub(c.date) > changeWithin {
			return c.hash
		}
	}
	return ""
}

// readHistory returns the commits of the branch, the oldest first.
func readHistory(ctx context.Context, root string) ([]commit, error) {
	out, err := git(ctx, root, "log", "--first-parent", "--reverse", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	var history []commit
	for line := range strings.Lines(out) {
		hash, seconds, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("git log says %q: %w", line, err)
		}
		history = append(history, commit{hash, time.Unix(n, 0)})
	}
	return history, nil
}

// changedFiles returns the files that differ from a commit, committed or not, in more than comments. Of no commit all
// files differ.
func changedFiles(ctx context.Context, root, base string) ([]string, error) {
	command := []string{"ls-files"}
	if base != "" {
		command = []string{"diff", "--name-only", "--no-renames", base}
	}
	out, err := git(ctx, root, command...)
	if err != nil {
		return nil, err
	}
	return withoutCommented(ctx, root, base, strings.Fields(out))
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}
