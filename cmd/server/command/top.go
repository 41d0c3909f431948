package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
)

// topFlags are those of `top`.
type topFlags struct {
	observerFlags
	once     bool
	sort, by string
}

// subjects are what rows can be about.
var subjects = []string{view.ByCluster, view.ByReplica, view.ByResource}

func newTop() *cobra.Command {
	f := &topFlags{observerFlags: observerFlags{interval: 2 * time.Second}, sort: view.Orders[0], by: view.ByCluster}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show requests, writes and refused writes per second of each logical cluster",
		Long: `Show, per second, what each logical cluster was asked for on all replicas together: requests of clients, writes, writes
that were refused (403, 412, 422, 429), requests that failed (5xx) or were too many (429), and how many places they held on
average. Each replica knows its 256 busiest clusters; all others are one row.

With --by=replica: requests for objects, also those of controllers, the 99th percentile of their durations, and what is in
use. With --by=resource: the same for each resource, on all replicas together. On a terminal the table is redrawn until
Ctrl-C; otherwise it is printed once.

Exit codes: 0 printed; 1 no server answered; 2 the arguments are wrong.`,
		Example: `  regent top
  regent top --sort=refused
  regent top --by=resource --sort=writes --once
  regent top --interval=10s -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addTo(cmd)
	f.addReplicaTo(cmd)
	cmd.Flags().DurationVar(&f.interval, "interval", f.interval, "How long to count.")
	cmd.Flags().BoolVar(&f.once, "once", false, "Print once, even on a terminal.")
	cmd.Flags().StringVar(&f.sort, "sort", f.sort, "What to sort by, the largest first: "+strings.Join(view.Orders, ", ")+".")
	cmd.Flags().StringVar(&f.by, "by", f.by, "What rows are about: "+strings.Join(subjects, ", ")+".")
	complete(cmd, "sort", func(context.Context) []string { return view.Orders })
	complete(cmd, "by", func(context.Context) []string { return subjects })
	return cmd
}

func (f *topFlags) run(cmd *cobra.Command) error {
	if !slices.Contains(subjects, f.by) {
		return usageError{fmt.Errorf("--by %q: give one of %q", f.by, subjects)}
	}
	if err := view.Sort(nil, f.sort); err != nil {
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
	rows, err := f.rows(ctx, client, of)
	if err != nil {
		return nil, err
	}
	if err := view.Sort(rows, f.sort); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = view.Top(&text, f.look(cmd), rows, f.by)
	return text.Bytes(), err
}

// rows counts. It fails if no replica answers.
func (f *topFlags) rows(ctx context.Context, client *ask.Client, of status.Installation) ([]view.Row, error) {
	count := client.Watch
	if f.by == view.ByCluster {
		count = client.Count
	}
	replicas := count(ctx, of, f.interval)
	if ctx.Err() == nil && !slices.ContainsFunc(replicas, func(r ask.Replica) bool { return r.Fault == "" }) && len(replicas) > 0 {
		last := replicas[len(replicas)-1]
		return nil, fmt.Errorf("%w: replica %s: %s", errNothing, last.Name, last.Fault)
	}
	return view.Rows(f.by, replicas), nil
}
