package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/options"
)

// defaultKubeconfig is where a replica with the default root directory writes it.
const defaultKubeconfig = ".regent/admin.kubeconfig"

// forgetTimeout bounds the command.
const forgetTimeout = 30 * time.Second

func newForgetReplica() *cobra.Command {
	kubeconfig, kubecontext, namespace := "", "system:admin", options.New().Election.Namespace
	cmd := &cobra.Command{
		Use:   "forget-replica <replica>",
		Short: "Say that a replica is dead, so that another takes the lease that it holds for life",
		Long: `Say that a replica is dead, so that another takes the lease that it holds for life (--leader-election-mode=for-life). For a
replica whose machine is gone for good, or cut off for too long: what died on a machine that lives needs no word. The replica's
name is in the Event, on the Lease and in the log of those who wait. Nothing is asked: if it lives after all, and leads, its
term is over, and its writes are refused.`,
		Example: `  regent forget-replica host-b_1a2b3c4d --kubeconfig=.regent/admin.kubeconfig`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("forget-replica takes the name of one replica, got %q: see regent forget-replica --help", args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			if rules.ExplicitPath = kubeconfig; kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
				rules.ExplicitPath = defaultKubeconfig
			}
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubecontext}).ClientConfig()
			if err != nil {
				return fmt.Errorf("cannot read the admin's kubeconfig, give --kubeconfig: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), forgetTimeout)
			defer cancel()
			if err := server.ForgetReplica(ctx, config, namespace, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "replica %s is forgotten: what it held for life is free\n", args[0])
			return err
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "The admin's kubeconfig, with the address of a replica that lives; by default that of $KUBECONFIG, or "+defaultKubeconfig+".")
	cmd.Flags().StringVar(&kubecontext, "context", kubecontext, "Its context for the logical cluster of the shard's own Leases.")
	cmd.Flags().StringVar(&namespace, "leader-election-namespace", namespace, "Namespace of the Leases, as the replicas have it.")
	return cmd
}
