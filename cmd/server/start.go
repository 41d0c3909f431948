package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/cmd/server/dev"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/options"
)

// helpWidth is the width of --help, in columns.
const helpWidth = 100

func newStart() *cobra.Command {
	opts := options.New()
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run one replica of a shard",
		Long: `Run one replica of a shard, until SIGTERM or SIGINT. A second signal ends it at once.

Several replicas may share an etcd if each is given --enable-leader-election. Without that flag the replica runs the
controllers as if it were alone; two replicas without the flag do not detect each other.`,
		Args: noArgs,
	}
	flags := startFlags(opts)
	cmd.RunE = func(*cobra.Command, []string) error { return start(opts, flags) }
	for _, set := range flags.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	cliflag.SetUsageAndHelpFunc(cmd, flags, helpWidth)
	return cmd
}

// startFlags returns all flags of start, in the groups that --help shows. Call it once for each opts.
func startFlags(opts *options.Options) cliflag.NamedFlagSets {
	flags := opts.Flags()
	globalflag.AddGlobalFlags(flags.FlagSet("global"), "start", logs.SkipLoggingConfigurationFlags())
	return flags
}

// start runs a replica until SIGTERM or SIGINT.
func start(opts *options.Options, flags cliflag.NamedFlagSets) error {
	if err := opts.Validate(); err != nil {
		return usageError{err}
	}
	registry, err := catalog.Registry()
	if err != nil {
		return err
	}
	cfg, err := opts.Config(registry)
	if err != nil {
		return usageError{err}
	}
	if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return usageError{err}
	}
	cfg.Limits.CPUs, cfg.Flags = shareCPUs(), options.Shown{FlagSets: flags}
	return serve(func(ctx context.Context) error {
		s, err := server.New(ctx, cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}

// serve calls run with a context that ends at a signal, or with the parent process, and logs the end. It is the whole
// life of the process.
func serve(run func(context.Context) error) error {
	quieten()
	defer logs.FlushLogs()
	parentEnded := make(chan struct{})
	if err := dev.UntilParentEnds(func() { close(parentEnded) }); err != nil {
		return usageError{err}
	}
	ctx, stop := untilSignal(context.Background(), parentEnded)
	defer stop()
	limitMemory(ctx)
	if err := run(ctx); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

// untilSignal returns a context that ends at the first SIGTERM or SIGINT, or when the parent process has ended. A
// second signal ends the process at once. The returned function releases the signals.
func untilSignal(parent context.Context, parentEnded <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			klog.FromContext(ctx).Info("Stopping", "signal", s.String())
			cancel(fmt.Errorf("received signal %q", s))
		case <-parentEnded:
			klog.FromContext(ctx).Info("Stopping", "reason", "the parent process has ended")
			cancel(errors.New("the parent process has ended"))
		case <-done:
			return
		}
		select {
		case s := <-signals:
			klog.FromContext(ctx).Error(errors.New("second signal"), "Exiting at once", "signal", s.String())
			klog.Flush()
			os.Exit(exitFailure)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
