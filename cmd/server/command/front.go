package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/front"
	"github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
)

// frontOptions are the values of the flags of front.
type frontOptions struct {
	membership, bindAddress string
	port                    int
	names                   []string
	shutdownDelay           time.Duration
	shutdownTimeout         time.Duration
	snapshot                string
	snapshotAge             time.Duration
	limits                  front.Limits
	clientCAFile            string
	accessLog               bool
	logs                    *logsapi.LoggingConfiguration
}

func newFront() *cobra.Command {
	o := &frontOptions{limits: front.DefaultLimits(), logs: logsapi.NewLoggingConfiguration()}
	cmd := &cobra.Command{
		Use:   "front",
		Short: "Run a front: the entrance of an installation of several shards",
		Long: `Run a front until SIGTERM or SIGINT: it knows which shard has which logical cluster, and forwards requests there. Any
number of fronts may run side by side. Each needs a membership of its own, which regent front add prints.`,
		Example: `  (umask 077; regent front add f1 > f1.yaml)
  regent front --membership=f1.yaml --bind-address=0.0.0.0 --external-hostname=regent.example`,
		Args: noCommand,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.membership, "membership", "", "File that regent front add has printed. It is read again when it changes.")
	flags.StringVar(&o.bindAddress, "bind-address", "127.0.0.1", "Address on which the front listens.")
	flags.IntVar(&o.port, "secure-port", 6443, "Port on which the front listens.")
	flags.StringArrayVar(&o.names, "external-hostname", nil, "Name or address under which clients reach the front, for its certificate. Once for each. It is always valid for localhost and --bind-address.")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0, "How long the front keeps serving after SIGTERM, not ready, so that load balancers stop sending requests: twice the time that they take. In the second half each answer ends its connection.")
	flags.DurationVar(&o.shutdownTimeout, "shutdown-timeout", 10*time.Second, "How long requests may take to finish after that. Watches are ended meanwhile, one by one.")
	flags.StringVar(&o.snapshot, "snapshot-file", "", "File in which the front keeps what it knows, for its next start. Without one a front that starts while a shard is down does not know that shard's clusters, and none while the root shard is down.")
	flags.DurationVar(&o.snapshotAge, "snapshot-max-age", 24*time.Hour, "How old a snapshot may be with which the front is ready before it has heard the root shard.")
	flags.IntVar(&o.limits.Connections.Total, "max-connections", o.limits.Connections.Total, "How many connections may be open. Further ones are closed at once. 0: three quarters of the file descriptors that the process may open, which is the upper limit in any case.")
	flags.IntVar(&o.limits.Connections.PerClient, "max-connections-per-client", o.limits.Connections.PerClient, "How many connections one IP address (IPv6: one /64 network) may have open. 0: half of --max-connections. Give the same as --max-connections if all clients come through one load balancer that does not pass on their addresses.")
	flags.IntVar(&o.limits.Requests, "max-requests", o.limits.Requests, "How many requests, without watches, may be under way. Further ones are answered with 429. 0: no limit.")
	flags.IntVar(&o.limits.RequestsPerClient, "max-requests-per-client", o.limits.RequestsPerClient, "The same for one client: the user, with all tokens together; the service accounts of a logical cluster are one. 0: no limit.")
	flags.IntVar(&o.limits.WatchesPerClient, "max-watches-per-client", o.limits.WatchesPerClient, "How many watches one client may have open. Further ones are answered with 429. 0: no limit.")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "Further certificate authorities for users' certificates, as shards have them. Read again for new connections, and each minute for open ones. The common name is the user, the organisations are the groups.")
	flags.BoolVar(&o.accessLog, "access-log", false, "Log each request: the user, what it asked for, the shard, the status, how long it took, and how much of that the front added.")
	logsapi.AddFlags(o.logs, flags)
	abridge(cmd, []string{
		"membership", "bind-address", "secure-port", "external-hostname", "client-ca-file", "snapshot-file", "shutdown-delay-duration", "access-log", allFlags,
	}, []section{{"Flags", flags}})
	cmd.AddCommand(newFrontAdd(), newFrontRemove())
	return cmd
}

// run runs a front until SIGTERM or SIGINT.
func (o *frontOptions) run() error {
	if o.membership == "" {
		return usageError{errors.New("give --membership: regent front add prints one")}
	}
	ip := net.ParseIP(o.bindAddress)
	if ip == nil {
		return usageError{fmt.Errorf("--bind-address %q is no IP address", o.bindAddress)}
	}
	if err := o.validate(); err != nil {
		return usageError{err}
	}
	membership, err := pki.ReadMembership(o.membership)
	if err != nil {
		return usageError{fmt.Errorf("--membership: %w", err)}
	}
	if err := logsapi.ValidateAndApply(o.logs, utilfeature.DefaultFeatureGate); err != nil {
		return usageError{err}
	}
	cfg := front.Config{
		Membership: membership, MembershipFile: o.membership, ShutdownDelay: o.shutdownDelay, ShutdownTimeout: o.shutdownTimeout, SnapshotFile: o.snapshot, SnapshotAge: o.snapshotAge,
		Limits: o.limits, AccessLog: o.accessLog, ClientCAFile: o.clientCAFile,
	}
	for _, name := range append(o.names, "localhost", "127.0.0.1", "::1", o.bindAddress) {
		if address := net.ParseIP(name); address != nil {
			cfg.Addresses = append(cfg.Addresses, address)
		} else {
			cfg.Names = append(cfg.Names, name)
		}
	}
	return serve(func(ctx context.Context) error {
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("front", membership.Member.Name))
		address := net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port))
		if cfg.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
			return fmt.Errorf("cannot listen on %s (--bind-address, --secure-port): %w", address, err)
		}
		f, err := front.New(cfg) //nolint:contextcheck // each connection has its own
		if err != nil {
			_ = cfg.Listener.Close()
			return err
		}
		klog.FromContext(ctx).Info("Serving", "address", address)
		return f.Run(ctx)
	})
}

// validate returns all faults, one line each.
func (o *frontOptions) validate() error {
	durations := map[string]time.Duration{"--shutdown-delay-duration": o.shutdownDelay, "--shutdown-timeout": o.shutdownTimeout, "--snapshot-max-age": o.snapshotAge}
	counts := map[string]int{
		"--max-connections": o.limits.Connections.Total, "--max-connections-per-client": o.limits.Connections.PerClient,
		"--max-requests": o.limits.Requests, "--max-requests-per-client": o.limits.RequestsPerClient, "--max-watches-per-client": o.limits.WatchesPerClient,
	}
	return errors.Join(append(negative(durations), negative(counts)...)...)
}

// negative returns an error for each flag whose value is negative, always in the same order.
func negative[T int | time.Duration](flags map[string]T) (errs []error) {
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		if flags[flag] < 0 {
			errs = append(errs, fmt.Errorf("%s %v must not be negative", flag, flags[flag]))
		}
	}
	return errs
}

func newFrontAdd() *cobra.Command {
	f, keys := &shardFlags{}, ".regent/pki"
	cmd := &cobra.Command{
		Use:   "add <front>",
		Short: "Make a front a member, and print its membership",
		Long: `Make a front a member of the installation, and print its membership: regent front --membership=<file>. All shards believe
a front when it says for whom it asks: keep the file as a secret. A front that is a member already gets a new membership,
and the old one is refused from now on.`,
		Args: oneName("front"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bundle, err := pki.Open(keys)
			if err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				membership, err := admin.AddFront(ctx, bundle, args[0])
				if err != nil {
					return err
				}
				return printMembership(cmd, membership)
			})
		},
	}
	f.addTo(cmd.Flags())
	cmd.Flags().StringVar(&keys, "pki-directory", keys, "Directory with the key of the installation's certificate authority: pki/ of the root shard.")
	return cmd
}

func newFrontRemove() *cobra.Command {
	f := &shardFlags{}
	cmd := &cobra.Command{
		Use: "remove <front>", Short: "Make all shards refuse a front", Args: oneName("front"), ValidArgsFunction: completes(f.frontNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				return confirm(cmd, admin.RemoveFront(ctx, args[0]), "front %s is removed: stop it\n", args[0])
			})
		},
	}
	f.addTo(cmd.Flags())
	return cmd
}
