package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/options"
)

// defaultKubeconfig is the file that a replica with the default root directory writes.
const defaultKubeconfig = ".regent/admin.kubeconfig"

// forgetTimeout is how long the whole command may take.
const forgetTimeout = 30 * time.Second

func newForgetReplica() *cobra.Command {
	kubeconfig, kubecontext, namespace := "", "system:admin", options.New().Election.Namespace
	cmd := &cobra.Command{
		Use:   "forget-replica <replica>",
		Short: "Declare a replica dead, so that another one can take the lease that it holds for life",
		Long: `Declare a replica dead, so that another one can take the lease that it holds for life (--leader-election-mode=for-life). Use
it when the replica's machine is lost, or cut off for too long. A replica that died while its machine runs needs no such
command. The name of the replica is in the Event, on the Lease, and in the log of the replicas that wait. The command does
not check whether the replica is dead: if it still leads, its term ends and its writes are refused.`,
		Example: `  regent forget-replica host-b_1a2b3c4d --kubeconfig=.regent/admin.kubeconfig`,
		Args:    oneName("replica"),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := adminConfig(kubeconfig, kubecontext)
			if err != nil {
				return err
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
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "The admin's kubeconfig, with the address of a replica that serves. Default: $KUBECONFIG, or "+defaultKubeconfig+".")
	cmd.Flags().StringVar(&kubecontext, "context", kubecontext, "The kubeconfig's context for the logical cluster that has the shard's own Leases.")
	cmd.Flags().StringVar(&namespace, "leader-election-namespace", namespace, "Namespace of the Leases. Give the same as to the replicas.")
	return cmd
}

// adminConfig returns how to reach a server as its administrator. kubeconfig may be empty: see the flag's help.
func adminConfig(kubeconfig, kubecontext string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if rules.ExplicitPath = kubeconfig; kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		rules.ExplicitPath = defaultKubeconfig
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubecontext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot read the admin's kubeconfig, give --kubeconfig: %w", err)
	}
	return config, nil
}
