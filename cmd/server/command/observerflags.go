package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
)

// observerFlags are of all commands that ask how an installation is doing.
type observerFlags struct {
	admin          adminFlags
	output         string
	shard, replica string
	watch          bool
	interval       time.Duration
}

// exitCodes ends the help of commands that tell by their exit code whether all is well.
const exitCodes = `

Exit codes: 0 all is well, or there are only notices; 1 no server answered; 2 the arguments are wrong; 3 the worst
problem is a warning; 4 the worst problem is critical.`

// addTo adds the flags that all such commands have.
func (f *observerFlags) addTo(cmd *cobra.Command) {
	f.admin.addTo(cmd.Flags(), defaultContext, "The kubeconfig's context: any that leads to a replica. If there is none of the default name, the current one is used.")
	cmd.Flags().StringVarP(&f.output, "output", "o", view.Table, "Format of the output: "+strings.Join(view.Formats, ", ")+".")
	cmd.Flags().StringVar(&f.shard, "shard", "", "Only this shard.")
	complete(cmd, "output", func(context.Context) []string { return view.Formats })
	complete(cmd, "shard", f.shardNames)
}

func (f *observerFlags) addReplicaTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.replica, "replica", "", "Only this replica.")
	complete(cmd, "replica", f.replicaNames)
}

func (f *observerFlags) addWatchTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "Keep looking: redraw on a terminal, else print a line for each change (-o json, yaml: everything at each change).")
	cmd.Flags().DurationVar(&f.interval, "interval", time.Second, "Pause between two looks with --watch.")
}

const defaultContext = "system:admin"

// client returns who asks. What it has to say goes to stderr.
func (f *observerFlags) client(cmd *cobra.Command) (*ask.Client, error) {
	if err := view.CheckFormat(f.output); err != nil {
		return nil, usageError{err}
	}
	if f.watch && f.interval <= 0 {
		return nil, usageError{fmt.Errorf("--interval %s must be more than 0", f.interval)}
	}
	flag := cmd.Flags().Lookup("context")
	places, err := f.admin.places(flag == nil || !flag.Changed)
	if err != nil {
		return nil, err
	}
	client := ask.New(places)
	client.Say = func(line string) { _, _ = fmt.Fprintf(cmd.ErrOrStderr(), "regent: %s\n", line) }
	return client, nil
}

// installation asks for the installation, with all its problems, and leaves only what was asked for.
func (f *observerFlags) installation(ctx context.Context, client *ask.Client) (status.Installation, error) {
	of, err := client.Installation(ctx)
	if err != nil {
		return of, err
	}
	addTerms(ctx, client, &of)
	of.Problems = merge(status.Diagnose(of, time.Now()), of.Problems)
	return f.narrow(of)
}

// addTerms adds the latest terms of a lone shard whose replicas do not send them along. Without them nobody is told why
// it is led.
func addTerms(ctx context.Context, client *ask.Client, of *status.Installation) {
	const latest = 10
	if len(of.Shards) != 1 || len(of.Shards[0].Terms) > 0 || of.Shards[0].Fault != "" {
		return
	}
	if terms, err := client.Terms(ctx, *of, of.Shards[0].Name); err == nil {
		of.Shards[0].Terms = terms.Terms[:min(latest, len(terms.Terms))]
	}
}

// merge returns what this program has found, and what the server has found besides, which may be newer.
func merge(own, theirs []status.Problem) []status.Problem {
	for _, t := range theirs {
		if !slices.ContainsFunc(own, func(p status.Problem) bool { return p.Kind == t.Kind && p.Shard == t.Shard && p.Replica == t.Replica }) {
			own = append(own, t)
		}
	}
	return own
}

// narrow leaves the shard and the replica that were asked for, and what is wrong with them.
func (f *observerFlags) narrow(of status.Installation) (status.Installation, error) {
	if f.shard != "" {
		s, err := ask.OneShard(of, f.shard)
		if err != nil {
			return of, usageError{err}
		}
		of.Shards = []status.Shard{s}
	}
	if f.replica != "" {
		shards, found := []status.Shard{}, false
		for _, s := range of.Shards {
			s.Replicas = slices.DeleteFunc(slices.Clone(s.Replicas), func(r status.Replica) bool { return r.Name != f.replica })
			if len(s.Replicas) > 0 {
				shards, found = append(shards, s), true
			}
		}
		if !found {
			return of, usageError{fmt.Errorf("there is no replica %q: see regent status", f.replica)}
		}
		of.Shards = shards
	}
	of.Problems = slices.DeleteFunc(slices.Clone(of.Problems), func(p status.Problem) bool {
		return f.shard != "" && p.Shard != f.shard && p.Shard != "" || f.replica != "" && p.Replica != f.replica && p.Replica != ""
	})
	return of, nil
}

func (f *observerFlags) look(cmd *cobra.Command) view.Look {
	return view.Look{Format: f.output, Now: time.Now(), Colour: isTerminal(cmd.OutOrStdout()), Width: widthOf(cmd.OutOrStdout())}
}

// problemsFound is the severity of the worst problem of what was printed. It is an error only for the exit code.
type problemsFound status.Severity

// Error implements error.
func (p problemsFound) Error() string { return "the worst problem is " + string(p) }

// onlyProblems reports whether an error is nothing else. Beside another one that one counts.
func onlyProblems(err error) (problemsFound, bool) {
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && len(joined.Unwrap()) == 1 {
		return onlyProblems(joined.Unwrap()[0])
	}
	problems := problemsFound("")
	found := !ok && errors.As(err, &problems)
	return problems, found
}

func (p problemsFound) exitCode() int {
	switch status.Severity(p) {
	case status.Critical:
		return exitCritical
	case status.Warning:
		return exitWarning
	}
	return exitOK
}

// verdict returns an error for the exit code, unless all is well.
func verdict(problems []status.Problem) error {
	if worst := status.Worst(problems); worst == status.Critical || worst == status.Warning {
		return problemsFound(worst)
	}
	return nil
}

// errNothing says that a command has nothing to show.
var errNothing = errors.New("no server answered")
