package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/doctor"
	"github.com/regent-project/regent/cmd/server/face/metrics"
	"github.com/regent-project/regent/cmd/server/face/view"
)

// topFlags are those of `top`.
type topFlags struct {
	observerFlags
	once     bool
	sort, by string
}

// What rows are about.
const byReplica, byResource = "replica", "resource"

func newTop() *cobra.Command {
	f := &topFlags{observerFlags: observerFlags{interval: 2 * time.Second}, sort: metrics.Orders[0], by: byReplica}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show requests, writes and refused writes of each replica in a second",
		Long: `Show what each replica was asked for in a second: requests for objects, writes, writes that were refused (403, 412, 422, 429) and requests that failed
(5xx), with the 99th percentile of their durations (the upper bound of a bucket), and what is in use. Controllers' own requests count, too. With
--by=resource: the same of each resource, on all replicas together. There are no metrics by logical cluster: the audit log has each request's.

On a terminal the table is drawn anew until Ctrl-C; otherwise it is printed once.

Exit codes: 0 printed; 1 nobody could be asked; 2 the arguments are wrong.`,
		Example: `  regent top
  regent top --by=resource --sort=writes --once
  regent top --interval=10s -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addTo(cmd)
	f.addReplicaTo(cmd)
	cmd.Flags().DurationVar(&f.interval, "interval", f.interval, "How long to count.")
	cmd.Flags().BoolVar(&f.once, "once", false, "Print once, also on a terminal.")
	cmd.Flags().StringVar(&f.sort, "sort", f.sort, fmt.Sprintf("What to sort by, the largest first: one of %q.", metrics.Orders))
	cmd.Flags().StringVar(&f.by, "by", f.by, "What rows are about: replica or resource.")
	complete(cmd, "sort", func(context.Context) []string { return metrics.Orders })
	complete(cmd, "by", func(context.Context) []string { return []string{byReplica, byResource} })
	return cmd
}

func (f *topFlags) run(cmd *cobra.Command) error {
	if f.by != byReplica && f.by != byResource {
		return usageError{fmt.Errorf("--by %q: give %s or %s", f.by, byReplica, byResource)}
	}
	if err := metrics.Sort(nil, f.sort); err != nil {
		return usageError{err}
	}
	if f.interval <= 0 {
		return usageError{fmt.Errorf("--interval %s must be more than 0", f.interval)}
	}
	client, err := f.client(cmd)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	redraw := isTerminal(cmd.OutOrStdout()) && !f.once && f.look(cmd).IsFor()
	for {
		text, err := f.count(ctx, cmd, client)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if redraw {
			text = append([]byte(clearScreen), text...)
		}
		if _, err := cmd.OutOrStdout().Write(text); err != nil || !redraw {
			return err
		}
	}
}

// count counts for an interval, and returns what to print.
func (f *topFlags) count(ctx context.Context, cmd *cobra.Command, client *ask.Client) ([]byte, error) {
	of, err := client.Installation(ctx)
	if err != nil {
		return nil, err
	}
	if of, err = f.narrow(of); err != nil {
		return nil, err
	}
	rows, watched := doctor.Top(ctx, client, of, f.interval)
	if len(watched) == 0 && ctx.Err() == nil {
		for _, r := range rows {
			err = fmt.Errorf("%w: replica %s: %s", errNothing, r.Replica, r.Fault)
		}
		return nil, err
	}
	if f.by == byResource {
		rows = metrics.OfResources(watched)
	}
	if err := metrics.Sort(rows, f.sort); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = view.Top(&text, f.look(cmd), rows, f.by == byResource)
	return text.Bytes(), err
}
