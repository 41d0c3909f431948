package command

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/installation"
)

// reconcileTimeout is how long it may take by default: a shard may have a million workspaces.
const reconcileTimeout = time.Hour

func newShardReconcile(f *shardFlags) *cobra.Command {
	plan, timeout := false, reconcileTimeout
	cmd := &cobra.Command{
		Use: "reconcile <shard>", Short: "Settle where workspaces are that have moved since the backup of which a shard was restored",
		Args: oneName("shard"), ValidArgsFunction: completes(f.shardNames),
		Long: `Settle where workspaces are that have moved to a shard, or away from it, since the backup of which its etcd was restored:
docs/MOVING.md. A workspace that two shards have is given up by the one that had it before, and what was written there since
the restore is lost. One that its new shard has lost is taken back by the one that it had left. All shards must answer. The
command may be given again.`,
		Example: `  regent shard reconcile eu1 --plan
  regent shard reconcile eu1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []installation.Reconciliation{}
			fault := f.runUntil(cmd, timeout, func(ctx context.Context, admin *installation.Admin) error {
				var n atomic.Int64
				settled := func() string {
					return fmt.Sprintf("Asking the shards what they have: %d workspaces are settled", n.Load())
				}
				return view.WhileTelling(ctx, cmd.ErrOrStderr(), settled, func(ctx context.Context) error {
					return admin.Reconcile(ctx, args[0], plan, func(r installation.Reconciliation) {
						all = append(all, r)
						n.Add(1)
					})
				})
			})
			if fault != nil && len(all) == 0 {
				return fault
			}
			if err := f.print(cmd, all, "PATH\tCLUSTER\tSHARD\tWHAT", func(w io.Writer) {
				for _, r := range all {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Path, r.Cluster, r.Shard, whatIsReconciled(r, plan))
				}
			}); err != nil {
				return err
			}
			switch {
			case fault != nil || f.output != "table":
			case len(all) == 0:
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "There is nothing to settle.")
			case plan:
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was done (--plan).")
			}
			return fault
		},
	}
	f.addOutput(cmd)
	cmd.Flags().BoolVar(&plan, "plan", false, "Only say what would be done.")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long it may take.")
	return cmd
}

// whatIsReconciled says what becomes of a workspace.
func whatIsReconciled(r installation.Reconciliation, plan bool) string {
	switch {
	case r.Why != "":
		return fmt.Sprintf("not settled, also on %s: %s", r.From, r.Why)
	case r.TakenBack && plan:
		return fmt.Sprintf("would be taken back: %s has lost it", r.From)
	case r.TakenBack:
		return fmt.Sprintf("taken back: %s has lost it", r.From)
	case plan:
		return fmt.Sprintf("%s would give it up", r.From)
	}
	return r.From + " has given it up"
}
