package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/etcd"
)

func newEtcd() *cobra.Command {
	var cfg etcd.Config
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run an etcd for replicas on this machine, for tests and trials",
		Long: `Run the etcd that a replica embeds in a process of its own, until SIGTERM or SIGINT: several replicas on this machine share
it, and it outlives them. It listens on loopback. In its directory it writes "lock", with its URL, and in "pki" the key
without which it lets nobody in. It is one member, for tests and trials: a shard that matters has an etcd of three.`,
		Example: `  regent etcd --directory=.regent/etcd
  regent start --etcd-servers=$(cat .regent/etcd/lock) --etcd-cafile=.regent/etcd/pki/mutual.crt \
      --etcd-certfile=.regent/etcd/pki/mutual.crt --etcd-keyfile=.regent/etcd/pki/mutual.key`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case cfg.Directory == "":
				return usageError{errors.New("--directory must not be empty")}
			case cfg.ClientPort < 0 || cfg.ClientPort > 65535:
				return usageError{fmt.Errorf("--client-port %d must be between 1 and 65535, or 0 for any free port", cfg.ClientPort)}
			}
			return serve(func(ctx context.Context) error { return serveEtcd(ctx, cfg) })
		},
	}
	cmd.Flags().StringVar(&cfg.Directory, "directory", ".regent/etcd", "Directory with the data and the key. It is made if it is missing; one process at a time may use it.")
	cmd.Flags().IntVar(&cfg.ClientPort, "client-port", 0, "Loopback port to serve on. 0: any free port, a new one at each start.")
	return cmd
}

// serveEtcd runs an etcd until ctx ends.
func serveEtcd(ctx context.Context, cfg etcd.Config) error {
	store, err := etcd.Start(ctx, cfg)
	if inUse := (&etcd.InUseError{}); errors.As(err, &inUse) {
		return fmt.Errorf("end it first, or give another --directory: %w", err)
	}
	if err != nil {
		return err
	}
	defer store.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-store.Failed():
		return fmt.Errorf("etcd has stopped: %w", err)
	}
}
