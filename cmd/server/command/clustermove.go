package command

import (
	"context"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/installation"
)

func newClusterMove(f *wsFlags) *cobra.Command {
	to := ""
	cmd := &cobra.Command{
		Use:   "move <path>",
		Short: "Move a workspace to another shard, while it is used",
		Long: `Move a workspace to another shard of the installation, with all that is in it but the workspaces below it. Its users go
on meanwhile: docs/MOVING.md. Names, uids and URLs stay. Until the switch a move that fails is undone; after it the shards
end it. Interrupt the command to cancel it. No admission checks what is written, so members of system:masters may do it.

Exit codes: 0 it is there; 1 it is where it was, unless the error says otherwise; 2 the arguments are wrong.`,
		Example: `  regent cluster move root:team --to=eu1`,
		Args:    oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			if to == "" {
				return usageError{fmt.Errorf("say to which shard: --to=eu1 (regent shard list)")}
			}
			return f.move(ctx, cmd, path, to)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().StringVar(&to, "to", "", "The shard to move it to.")
	return cmd
}

func (f *wsFlags) move(ctx context.Context, cmd *cobra.Command, path logicalcluster.Path, to string) error {
	config, err := f.admin.config()
	if err != nil {
		return err
	}
	admin, err := installation.New(config)
	if err != nil {
		return err
	}
	var moved *installation.Moved
	err = view.While(ctx, cmd.ErrOrStderr(), fmt.Sprintf("Moving %s to shard %s", path, to), func(ctx context.Context) (err error) {
		moved, err = admin.Move(ctx, path, to)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Workspace %s moved from shard %s to %s: %d objects in %v. Writes waited for %v at most.\n",
		moved.Path, moved.From, moved.To, moved.Objects, moved.Took.Round(time.Millisecond), moved.Frozen.Round(time.Millisecond))
	return err
}
