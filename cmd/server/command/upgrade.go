package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/status"
)

func newUpgrade() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Say how far an upgrade has come, and finish it",
		Long: `Say which versions run, in which format each shard stores, and what keeps it from the newest one that its replicas read;
and take it there. Until then replicas of the version before read all that is stored, and an upgrade can be taken back.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUpgradeStatus(), newUpgradeFinalize())
	return cmd
}

func newUpgradeStatus() *cobra.Command {
	f := &observerFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say which versions run, and which format of what is stored waits for which replica",
		Long: `Say which version each replica and front runs, which formats of what is stored each replica reads, in which one each
shard is, and what keeps it from a newer one.

Exit codes: 0 an answer was printed; 1 no server answered; 2 the arguments are wrong.`,
		Example: `  regent upgrade status
  regent upgrade status --shard=eu1 -o json | jq '.shards[].heldBy'`,
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
				report := view.VersionsOf(of, build.Info().GitVersion)
				return output{
					print: func(w io.Writer, look view.Look) error { return view.Upgrade(w, look, report) },
					facts: view.FactsOfUpgrade(report),
				}, nil
			})
		},
	}
	f.addTo(cmd)
	f.addWatchTo(cmd)
	return cmd
}

func newUpgradeFinalize() *cobra.Command {
	f := &observerFlags{}
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "finalize",
		Short: "Raise shards to the newest format that their replicas read",
		Long: `Raise each shard, or the one that --shard names, to the newest format that its replicas read. It is refused as long as
one of them does not answer, or does not read that format (regent upgrade status). From then on replicas of a version that
does not read it end with exit code 2, and the way back is a backup of before. Do it when you would not go back any more.

Exit codes: 0 all are in the newest format; 1 one is not, or no server answered; 2 the arguments are wrong.`,
		Example: `  regent upgrade finalize
  regent upgrade finalize --shard=eu1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			of, err := client.Installation(ctx)
			if err != nil {
				return err
			}
			only, err := f.narrow(of)
			if err != nil {
				return err
			}
			var done []status.Upgrade
			var failed []error
			for _, s := range only.Shards {
				u := status.UpgradeOf(s)
				switch {
				case len(u.HeldBy) > 0:
					failed = append(failed, fmt.Errorf("shard %s is not taken on: %s", s.Name, strings.Join(u.HeldBy, " ")))
					continue
				case u.IsFinal():
				default:
					if u, err = client.Finalize(ctx, of, s.Name, u.To); err != nil {
						failed = append(failed, err)
						continue
					}
				}
				done = append(done, u)
			}
			return errors.Join(append([]error{printFinal(cmd, f.output, done)}, failed...)...)
		},
	}
	f.addTo(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long all of it may take.")
	return cmd
}

func printFinal(cmd *cobra.Command, format string, done []status.Upgrade) error {
	if format == view.JSON || format == view.YAML {
		return view.Encode(cmd.OutOrStdout(), format, done)
	}
	for _, u := range done {
		if err := printLine(cmd, "shard %s is in format %d, which versions from %s on read", u.Shard, u.From, u.ReadableFrom); err != nil {
			return err
		}
	}
	return nil
}
