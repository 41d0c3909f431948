package command

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
)

func newControllers() *cobra.Command {
	f := &observerFlags{}
	cmd := &cobra.Command{
		Use:   "controllers [controller]",
		Short: "List the controllers with their state, restarts and last error; or describe one",
		Long: `List the controllers that replicas run: their state, what is in their queues, how often they were restarted, and why.
With the name of a controller: what each replica says of it, and its stacks where it is late or stalled.` + exitCodes,
		Example: `  regent controllers
  regent controllers workspace
  regent controllers -o wide --replica=host-b-6443`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s takes the name of one controller at most, got %q", cmd.CommandPath(), args)}
			}
			return nil
		},
		ValidArgsFunction: completes(f.controllerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.client(cmd)
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return f.show(cmd, func(ctx context.Context) (output, error) { return f.controllers(ctx, client, name) })
		},
	}
	f.addTo(cmd)
	f.addReplicaTo(cmd)
	f.addWatchTo(cmd)
	return cmd
}

// controllers returns the controllers of all replicas, or one of them with its stacks.
func (f *observerFlags) controllers(ctx context.Context, client *ask.Client, name string) (output, error) {
	of, err := f.installation(ctx, client)
	if err != nil {
		return output{}, err
	}
	replicas, ok := onlyControllers(of, name)
	if name != "" && !ok {
		return output{}, usageError{fmt.Errorf("no replica that answers has a controller %q: see regent controllers", name)}
	}
	print := view.Controllers
	if name != "" {
		print = view.Controller
		addStacks(ctx, client, of, replicas, name)
	}
	var problems []status.Problem
	for _, p := range of.Problems {
		if p.About() == status.MatterControllers {
			problems = append(problems, p)
		}
	}
	return output{
		print:   func(w io.Writer, look view.Look) error { return print(w, look, replicas) },
		facts:   view.FactsOfControllers(replicas),
		verdict: verdict(problems),
	}, nil
}

// onlyControllers returns what each replica says of its controllers, or of one of them, and whether any has it.
func onlyControllers(of status.Installation, name string) (replicas []status.Replica, ok bool) {
	for _, s := range of.Shards {
		for _, r := range s.Replicas {
			only := status.Replica{Shard: s.Name, Name: r.Name, Instance: r.Instance, Fault: r.Fault, Observed: r.Observed, Election: status.Election{State: r.Election.State}, Controllers: r.Controllers}
			if name != "" {
				only.Controllers = slices.DeleteFunc(slices.Clone(r.Controllers), func(c status.Controller) bool { return c.Name != name })
			}
			ok = ok || len(only.Controllers) > 0
			replicas = append(replicas, only)
		}
	}
	return replicas, ok
}

// withStacks are the states of a controller in which its stacks say where it hangs.
var withStacks = []string{"late", "stalled", "starting", "waiting"}

// addStacks asks for the stacks of a controller where it is late or stalled.
func addStacks(ctx context.Context, client *ask.Client, of status.Installation, replicas []status.Replica, name string) {
	for i, r := range replicas {
		if len(r.Controllers) == 0 || !slices.Contains(withStacks, r.Controllers[0].State) || r.Controllers[0].Stacks != "" {
			continue
		}
		for _, itself := range client.Stacks(ctx, of, r.Shard, name) {
			if itself.Process() != r.Process() {
				continue
			}
			for _, c := range itself.Controllers {
				if c.Name == name {
					replicas[i].Controllers[0].Stacks = c.Stacks
				}
			}
		}
	}
}
