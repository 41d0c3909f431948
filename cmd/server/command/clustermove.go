package command

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/installation"
)

func newClusterMove(f *wsFlags) *cobra.Command {
	to, recursive, cancel := "", false, false
	cmd := &cobra.Command{
		Use:   "move <path>",
		Short: "Move a workspace to another shard, while it is used",
		Long: `Move a workspace to another shard of the installation, with all that is in it; with --recursive the workspaces below it
move, too, one after the other. It stays usable meanwhile: docs/MOVING.md. Names, uids and URLs stay. Until the switch a move
that fails is undone; after it the shards end it. Interrupt the command to cancel it, or cancel it from elsewhere with
--cancel. No admission checks what is written, so members of system:masters may do it.

Exit codes: 0 it is there; 1 it is where it was, unless the error says otherwise; 2 the arguments are wrong.`,
		Example: `  regent cluster move root:team --to=eu1
  regent cluster move root:team --cancel`,
		Args: oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			if cancel && (to != "" || recursive) {
				return usageError{fmt.Errorf("--cancel goes with no other flag of a move: it cancels the one that is under way")}
			}
			if cancel {
				return f.cancelMove(ctx, cmd, path)
			}
			if to == "" {
				return usageError{fmt.Errorf("say to which shard: --to=eu1 (regent shard list)")}
			}
			return f.move(ctx, cmd, path, to, recursive)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().StringVar(&to, "to", "", "The shard to move it to.")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "Cancel the move that is under way, whoever has begun it: the workspace stays on its shard.")
	cmd.Flags().BoolVar(&recursive, "recursive", false, "With all workspaces below it.")
	return cmd
}

func (f *wsFlags) move(ctx context.Context, cmd *cobra.Command, path logicalcluster.Path, to string, recursive bool) error {
	admin, err := f.admin.ofInstallation()
	if err != nil {
		return err
	}
	var now atomic.Value
	now.Store(fmt.Sprintf("Moving %s to shard %s", path, to))
	tell := func(path string, copied, of int64) {
		now.Store(fmt.Sprintf("Moving %s to shard %s: %d of %d objects are copied", path, to, copied, of))
	}
	said := func(moved *installation.Moved) {
		view.Clear(cmd.ErrOrStderr())
		tellMoved(cmd.OutOrStdout(), moved)
	}
	return view.WhileTelling(ctx, cmd.ErrOrStderr(), func() string { return now.Load().(string) }, func(ctx context.Context) error {
		if recursive {
			return admin.MoveAll(ctx, path, to, tell, said)
		}
		moved, err := admin.Move(ctx, path, to, tell)
		if err == nil {
			said(moved)
		}
		return err
	})
}

func (f *wsFlags) cancelMove(ctx context.Context, cmd *cobra.Command, path logicalcluster.Path) error {
	admin, err := f.admin.ofInstallation()
	if err != nil {
		return err
	}
	at := ""
	err = view.While(ctx, cmd.ErrOrStderr(), "Cancelling the move of "+path.String(), func(ctx context.Context) (err error) {
		at, err = admin.CancelMove(ctx, path)
		return err
	})
	return confirm(cmd, err, "Workspace %s stays on shard %s.\n", path, at)
}

func tellMoved(out io.Writer, moved *installation.Moved) {
	_, _ = fmt.Fprintf(out, "Workspace %s moved from shard %s to %s: %d objects in %v. Writes waited for %v at most.\n",
		moved.Path, moved.From, moved.To, moved.Objects, moved.Took.Round(time.Millisecond), moved.Frozen.Round(time.Millisecond))
}
