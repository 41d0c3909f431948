package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/options"
)

// forgetTimeout is how long the whole command may take.
const forgetTimeout = 30 * time.Second

func newForgetReplica() *cobra.Command {
	f, namespace := &observerFlags{}, options.New().Election.Namespace
	from := &f.admin
	cmd := &cobra.Command{
		Use:   "forget-replica <process>",
		Short: "Declare a replica dead that holds the lease for life, so that another can take it",
		Long: `Declare a replica dead that holds the lease for life, so that another can take it (--leader-election-mode=for-life).
Use it when the replica's machine is lost, or cut off for too long. It is not needed for a replica that died while its
machine keeps running. Name the process, as the Event and regent status do: a replica that is restarted keeps its name.
The command does not check whether the process is dead: if it still leads, its term ends and its writes are refused.`,
		Example: `  regent forget-replica host-b-6443_1a2b3c4d --kubeconfig=.regent/admin.kubeconfig`,
		Args:    oneName("replica"), ValidArgsFunction: completes(f.processNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := from.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), forgetTimeout)
			defer cancel()
			if err := server.ForgetReplica(ctx, config, namespace, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is forgotten: what it held for life is free\n", args[0])
			return err
		},
	}
	from.addTo(cmd.Flags(), "system:admin", "The kubeconfig's context that leads to the shard's own Leases.")
	cmd.Flags().StringVar(&namespace, "leader-election-namespace", namespace, "Namespace of the Leases, the same as the replicas'.")
	return cmd
}
