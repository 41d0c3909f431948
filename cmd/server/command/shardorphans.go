package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/installation"
)

func newShardOrphans(f *shardFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "orphans", Short: "List, adopt or delete logical clusters that have lost their Workspace", Args: noCommand,
		Long: `List logical clusters whose Workspace is missing on another shard, though nobody has deleted it: that shard was restored
from a backup. They are kept, and serve. Restore the Workspace, or adopt the cluster, or delete it.`,
		Example: `  regent shard orphans
  regent shard orphans adopt x5k2m7qa3bcd4efg
  regent shard orphans delete x5k2m7qa3bcd4efg`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				orphans, fault := admin.Orphans(ctx)
				if orphans == nil {
					return fault
				}
				if err := f.print(cmd, orphans, "SHARD\tCLUSTER\tPATH\tWORKSPACE\tOF SHARD", func(w io.Writer) {
					for _, o := range orphans {
						_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", o.Shard, o.Cluster, o.Path, o.Workspace, o.Owner)
					}
				}); err != nil {
					return err
				}
				return fault
			})
		},
	}
	f.addOutput(cmd)
	cmd.AddCommand(newOrphansAdopt(f), newOrphansDelete(f))
	return cmd
}

func newOrphansAdopt(f *shardFlags) *cobra.Command {
	var shard string
	cmd := &cobra.Command{
		Use: "adopt <logical cluster>", Short: "Recreate the Workspace that a logical cluster has lost", Args: oneName("logical cluster"),
		Long: `Recreate the Workspace that a logical cluster has lost, and return when the cluster is no longer an orphan. The cluster
keeps its name, its path, its owner and everything in it. The command fails if there is now another Workspace of the same
name, or if the logical cluster in which the Workspace was is gone, too. If it was interrupted, run it again.`,
		Example: `  regent shard orphans adopt x5k2m7qa3bcd4efg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				o, err := admin.Adopt(ctx, args[0], shard)
				return confirm(cmd, err, "logical cluster %s of shard %s has its Workspace %s again\n", o.Cluster, o.Shard, o.Workspace)
			})
		},
	}
	addShardFlag(cmd, &shard)
	return cmd
}

func newOrphansDelete(f *shardFlags) *cobra.Command {
	var shard string
	cmd := &cobra.Command{
		Use: "delete <logical cluster>", Short: "Delete a logical cluster that has lost its Workspace", Args: oneName("logical cluster"),
		Long: `Delete a logical cluster that has lost its Workspace, with everything in it. The command fails if the Workspace is back,
or if its shard does not say whether it is. The cluster's own shard empties it; what is in it cannot be brought back.`,
		Example: `  regent shard orphans delete x5k2m7qa3bcd4efg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				o, err := admin.DeleteOrphan(ctx, args[0], shard)
				return confirm(cmd, err, "logical cluster %s of shard %s is being deleted\n", o.Cluster, o.Shard)
			})
		},
	}
	addShardFlag(cmd, &shard)
	return cmd
}

func addShardFlag(cmd *cobra.Command, shard *string) {
	cmd.Flags().StringVar(shard, "shard", "", "The shard that has the logical cluster. Needed only if two shards say that they have it.")
}
