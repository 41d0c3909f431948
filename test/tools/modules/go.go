package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// place is where the go command runs, and what it takes modules from.
type place struct {
	directory string
	env       []string
}

// run runs a command, and shows what it writes.
func (p place) run(ctx context.Context, command ...string) error {
	c := p.command(ctx, command)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s in %s: %w", strings.Join(command, " "), p.directory, err)
	}
	return nil
}

// ask returns what a command writes to its standard output, without space around it. What it writes to the other is
// part of the error.
func (p place) ask(ctx context.Context, command ...string) (string, error) {
	var out, complaints bytes.Buffer
	c := p.command(ctx, command)
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s in %s: %w\n%s", strings.Join(command, " "), p.directory, err, complaints.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}

// quiet runs a command whose output is of no interest if it succeeds.
func (p place) quiet(ctx context.Context, command ...string) error {
	_, err := p.ask(ctx, command...)
	return err
}

func (p place) command(ctx context.Context, command []string) *exec.Cmd {
	c := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // go and git, by our own code
	c.Dir, c.Env = p.directory, append(os.Environ(), p.env...)
	return c
}
