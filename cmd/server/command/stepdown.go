package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
)

func newStepDown() *cobra.Command {
	f := &observerFlags{}
	var reason, to string
	index := -1
	timeout := 30 * time.Second
	cmd := &cobra.Command{
		Use:   "step-down",
		Short: "Have the leader hand over to another replica",
		Long: `Have the leader of a shard hand over: to any standby, or to the one that --to names. Any replica can be asked: it passes
the request on to the leader. In a shard with several ranges --range says whose leader is meant: regent status lists
who leads which. The command waits until another replica leads, and says how long that took. The reason is
written on the Lease and in the history. If the replica that --to names leads already, nothing happens.

Exit codes: 0 another replica leads, or the one that --to names; 1 no server answered, or no replica was seen to lead in
time; 2 the arguments are wrong.`,
		Example: `  regent step-down --reason='node maintenance'
  regent step-down --shard=eu1 --to=host-b-6443`,
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
			shard, err := ask.OneShard(of, f.shard)
			if err != nil {
				return usageError{err}
			}
			began := time.Now()
			change, err := client.StepDown(ctx, of, shard, ask.Wish{Reason: reason, To: to, Range: rangeGiven(cmd, &index)})
			if err != nil {
				return err
			}
			if err := view.While(ctx, cmd.ErrOrStderr(), "Waiting for another replica to lead "+change.What(), func(ctx context.Context) (err error) {
				change, err = client.AwaitSuccessor(ctx, of, change, began)
				return err
			}); err != nil {
				return err
			}
			return printSuccession(cmd, f.output, change)
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&to, "to", "", "The standby that should lead next. Default: any.")
	cmd.Flags().IntVar(&index, "range", index, "Which range is handed over, in a shard that has several: from 0 on.")
	cmd.Flags().StringVar(&reason, "reason", "", "Why, for the Lease and the history.")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait until another replica leads.")
	complete(cmd, "to", f.standbyNames)
	return cmd
}

// rangeGiven returns the value of --range; nil: it is not given.
func rangeGiven(cmd *cobra.Command, index *int) *int {
	if !cmd.Flags().Changed("range") {
		return nil
	}
	return index
}

func printSuccession(cmd *cobra.Command, format string, s ask.Succession) error {
	if format == view.JSON || format == view.YAML {
		return view.Encode(cmd.OutOrStdout(), format, s)
	}
	if s.LedAlready() {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s leads %s already, in epoch %d: nothing was done\n", s.To, s.What(), s.After)
		return err
	}
	took := time.Duration(s.Took * float64(time.Second)).Round(time.Millisecond)
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s led %s in epoch %d; %s leads it in epoch %d, %s after the request\n", s.From, s.What(), s.Before, s.To, s.After, took)
	return err
}
