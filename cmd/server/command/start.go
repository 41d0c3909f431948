package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/regent-project/regent"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/options"
)

// firstFlags are those that an operator needs to start a replica: of start, how its users and its peers reach it, and
// where it stores what they write.
var firstFlags = []string{
	"root-directory", "shard-name", "membership", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "bind-address",
	"secure-port", "advertise-address", "shard-base-url", "enable-leader-election", allFlags,
}

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
	var all []section
	for _, name := range flags.Order {
		set := flags.FlagSets[name]
		cmd.Flags().AddFlagSet(set)
		all = append(all, section{strings.ToUpper(name[:1]) + name[1:], set})
	}
	abridge(cmd, firstFlags, all)
	return cmd
}

// startFlags returns all flags of start, in the groups that --help shows. Call it once for each opts.
func startFlags(opts *options.Options) cliflag.NamedFlagSets {
	flags := opts.Flags()
	globalflag.AddGlobalFlags(flags.FlagSet("global"), "start", logs.SkipLoggingConfigurationFlags())
	return flags
}

// parseStart parses the flags of start that follow "--". further: there may be others, too.
func parseStart(args []string, further bool) (*options.Options, *pflag.FlagSet, error) {
	opts := options.New()
	flags := pflag.NewFlagSet("start", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.ParseErrorsAllowlist.UnknownFlags = further
	for _, set := range startFlags(opts).FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, nil, fmt.Errorf("after --: %w: see regent start --help", err)
	}
	if flags.NArg() > 0 {
		return nil, nil, fmt.Errorf("after --: start takes no arguments, got %q", flags.Arg(0))
	}
	return opts, flags, nil
}

// configOf returns the configuration of a replica that is started with flags.
func configOf(args []string) (server.Config, error) {
	opts, _, err := parseStart(args, false)
	if err != nil {
		return server.Config{}, err
	}
	if err := opts.Validate(); err != nil {
		return server.Config{}, fmt.Errorf("after --: %w", err)
	}
	registry, err := catalog.Registry()
	if err != nil {
		return server.Config{}, err
	}
	cfg, err := opts.Config(registry)
	if err != nil {
		return server.Config{}, fmt.Errorf("after --: %w", err)
	}
	return cfg, nil
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
	cfg.Limits.CPUs, cfg.Flags, cfg.Docs = shareCPUs(), options.PublicFlags{FlagSets: flags}, regent.Docs
	return serve(func(ctx context.Context) error {
		s, err := server.New(ctx, cfg)
		if err != nil {
			return err
		}
		err = s.Run(ctx)
		if errors.Is(err, format.ErrUnreadable) {
			return usageError{err} // another program is needed, and nothing was written
		}
		return err
	})
}
