package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/cmd/server/dev"
)

func newDev() *cobra.Command {
	opts := dev.NewOptions()
	cmd := &cobra.Command{
		Use:   "dev [flags] [-- flags of start for every replica]",
		Short: "Run a whole shard on this machine, or an installation of several shards",
		Long: `Run a whole shard on this machine until SIGTERM or SIGINT: an etcd and a balancer in this process, and replicas in
processes of their own. Kill any replica: etcd, the balancer and kubectl keep working. Enter restarts what has ended, and so
does SIGUSR1, where there is no terminal.

With --shards it is an installation of several shards, each with an etcd of its own, and two fronts. The balancer leads to
the fronts, and admin.kubeconfig to the balancer. Each further shard has its root directory in <root-directory>/shard-<n>.`,
		Example: `  regent dev --replicas=3
  regent dev --shards=3
  regent dev --program=bin/faulty -- --faults=stalls
  regent dev -- --leader-election-lease-duration=3s --leader-election-renew-deadline=2s --leader-election-retry-period=500ms`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
				return noArgs(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Start = args
			if err := errors.Join(opts.Validate(), startFault(args, opts.Program != "")); err != nil {
				return usageError{err}
			}
			// Of what this process logs, users need errors only.
			background := context.Background()
			ctx, stop := untilSignal(klog.NewContext(background, klog.FromContext(background).V(1)), nil)
			defer stop()
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGUSR1)
			defer signal.Stop(signals)
			err := dev.Run(ctx, dev.Config{
				Options: opts, Stdout: cmd.OutOrStdout(), Colour: isTerminal(cmd.OutOrStdout()), Stderr: cmd.ErrOrStderr(), Enters: enters(cmd.InOrStdin()), Signals: signals,
			})
			if errors.Is(err, dev.ErrUsage) {
				return usageError{err}
			}
			return err
		},
	}
	opts.AddFlags(cmd.Flags())
	return cmd
}

// startFault returns what is wrong with the flags of start that follow "--". Every replica gets them. If it is another
// program (further), that may have further flags.
func startFault(args []string, further bool) error {
	opts, flags, err := parseStart(args, further)
	if err != nil {
		return err
	}
	for _, own := range dev.Own {
		if flags.Changed(own) {
			return fmt.Errorf("after --: --%s is set by dev for each replica: leave it out", own)
		}
	}
	opts.Election.Enabled = true // dev gives this flag to every replica
	if err := opts.Validate(); err != nil {
		return fmt.Errorf("after --: %w", err)
	}
	return nil
}

// enters returns a channel that gets a value for each line of a terminal's input, and is closed when that ends; nil if
// the input is no terminal. Its goroutine lives as long as the process: nothing can interrupt a read of a terminal.
func enters(from io.Reader) <-chan struct{} {
	if !isTerminal(from) {
		return nil
	}
	// When this process is in the background, a read of the terminal must fail. By default it would stop this
	// process, and etcd with it.
	signal.Ignore(syscall.SIGTTIN)
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for input := bufio.NewScanner(from); input.Scan(); {
			lines <- struct{}{}
		}
	}()
	return lines
}
