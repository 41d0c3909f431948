// Package command is the program regent, with all its commands, which cmd/regent and cmd/server are.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/build"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command ran and failed
	exitUsage   = 2 // the arguments are wrong: nothing was started
	// What was asked for was printed, and it is not well.
	exitWarning  = 3
	exitCritical = 4
)

// usageError is a fault in what the user typed.
type usageError struct{ error }

// Main runs the command that the arguments of this process name, and returns its exit code.
func Main() int { return run(asPlugin(os.Args), os.Stdout, os.Stderr) }

// run executes the command that args name and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	if problems, ok := onlyProblems(err); ok {
		return problems.exitCode()
	}
	for line := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(stderr, "regent: %s\n", strings.TrimSpace(line))
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "regent",
		Short:         "An API server for logical clusters, with exactly one leader among its replicas",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: displayName()},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	cmd.AddGroup(groups...)
	for group, commands := range map[string][]*cobra.Command{
		groupLook:    {newStatus(), newControllers(), newTerms(), newTop(), newDoctor(), newUI()},
		groupUse:     {newWS(), newCluster()},
		groupRun:     {newDev(), newStart(), newFront(), newEtcd()},
		groupOperate: {newStepDown(), newForgetReplica(), newUpgrade(), newBackup(), newShard(), newPKI()},
		"":           {newVersion()},
	} {
		for _, c := range commands {
			c.GroupID = group
			cmd.AddCommand(c)
		}
	}
	completeNoFiles(cmd)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = printHelp(cmd, cmd.OutOrStdout(), sections(cmd)) })
	return cmd
}

// version is what `regent version` prints.
func version() string {
	info := build.Info()
	return fmt.Sprintf("regent %s (commit %s, built %s, %s, %s)", info.GitVersion, info.GitCommit, info.BuildDate, info.GoVersion, info.Platform)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printLine(cmd, "%s", version())
		},
	}
}

// noCommand is for commands that have commands of their own.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		cmd.SuggestionsMinimumDistance = 2
		advice := "see"
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			advice = fmt.Sprintf("did you mean %s? See", strings.Join(near, " or "))
		}
		return usageError{fmt.Errorf("unknown command %q: %s %s --help", args[0], advice, cmd.CommandPath())}
	}
	return nil
}

// oneName is for commands whose argument is the name of one thing.
func oneName(of string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("%s takes the name of one %s, got %q: see %s --help", cmd.CommandPath(), of, args, cmd.CommandPath())}
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args)}
	}
	return nil
}
