package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
)

func newStatus() *cobra.Command {
	f := &observerFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say who leads and why, how all replicas are doing, and what is wrong",
		Long: `Say how the shard, or the installation, is doing: which replica leads, for how long and why, each replica's contact with
the leader, its controllers, and all problems with what to do about them. Any replica or front can be asked. If the
kubeconfig's server does not answer, the replicas of its contexts replica-<n> are asked, which regent dev writes.` + exitCodes,
		Example: `  regent status
  regent status --shard=eu1 -o wide
  regent status --watch
  regent status -o json | jq -r '.problems[].kind'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd)
			if err != nil {
				return err
			}
			return f.show(cmd, func(ctx context.Context) (output, error) {
				of, err := f.installation(ctx, client)
				if err != nil {
					return output{}, err
				}
				return output{
					print:   func(w io.Writer, look view.Look) error { return view.Installation(w, look, of) },
					facts:   view.Facts(of),
					verdict: verdict(of.Problems),
				}, nil
			})
		},
	}
	f.addTo(cmd)
	f.addReplicaTo(cmd)
	f.addWatchTo(cmd)
	return cmd
}
