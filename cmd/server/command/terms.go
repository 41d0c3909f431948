package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
)

func newTerms() *cobra.Command {
	f := &observerFlags{}
	cmd := &cobra.Command{
		Use:   "terms",
		Short: "List which replica led when, why each term ended, and for how long nobody led",
		Long: `List the latest terms of a shard: which replica led, for how long, which event made it campaign (trigger), for how long
nobody led before that (gap), how long its first write took from then (none: there was nothing to write), and why the term
ended. -o wide shows all phases of each takeover, which docs/FAILOVER.md explains.

Exit codes: 0 the history was printed; 1 no server answered; 2 the arguments are wrong.`,
		Example: `  regent terms
  regent terms --shard=eu1 -o wide
  regent terms --watch`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd)
			if err != nil {
				return err
			}
			return f.show(cmd, func(ctx context.Context) (output, error) {
				of, err := client.Installation(ctx)
				if err != nil {
					return output{}, err
				}
				shard, err := ask.OneShard(of, f.shard)
				if err != nil {
					return output{}, usageError{err}
				}
				terms, err := client.Terms(ctx, of, shard.Name)
				if err != nil {
					return output{}, err
				}
				return output{
					print: func(w io.Writer, look view.Look) error { return view.Terms(w, look, terms) },
					facts: view.FactsOfTerms(terms),
				}, nil
			})
		},
	}
	f.addTo(cmd)
	f.addWatchTo(cmd)
	return cmd
}
