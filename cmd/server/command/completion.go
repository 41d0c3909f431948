package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/status"
)

// completionTimeout is how long somebody who presses Tab waits for names.
const completionTimeout = 2 * time.Second

// complete has a shell complete a flag with what names returns.
func complete(cmd *cobra.Command, flag string, names func(context.Context) []string) {
	// It fails only if there is no such flag, or if it is completed already: the first use of the shell would show
	// it.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeNoFiles keeps shells from completing the names of files for arguments of which nothing is known.
func completeNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		completeNoFiles(c)
	}
}

// names asks for the installation and returns what each names of it, each once.
func (f *observerFlags) names(ctx context.Context, each func(status.Installation) []string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	places, err := f.admin.places(true)
	if err != nil {
		return nil
	}
	of, err := ask.New(places).Installation(ctx)
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	var names []string
	for _, name := range each(of) {
		if !seen[name] && name != "" {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// completes has a shell complete the only argument of a command with what names returns.
func completes(names func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	}
}

func (f *observerFlags) frontNames(ctx context.Context) []string {
	return f.names(ctx, func(of status.Installation) (names []string) {
		for _, front := range of.Fronts {
			names = append(names, front.Name)
		}
		return names
	})
}

func (f *observerFlags) shardNames(ctx context.Context) []string {
	return f.names(ctx, func(of status.Installation) (names []string) {
		for _, s := range of.Shards {
			names = append(names, s.Name)
		}
		return names
	})
}

// ofReplicas returns what each names of all replicas of the shard that --shard has chosen.
func (f *observerFlags) ofReplicas(ctx context.Context, each func(status.Replica) []string) []string {
	return f.names(ctx, func(of status.Installation) (names []string) {
		for _, s := range of.Shards {
			if f.shard == "" || f.shard == s.Name {
				for _, r := range s.Replicas {
					names = append(names, each(r)...)
				}
			}
		}
		return names
	})
}

func (f *observerFlags) replicaNames(ctx context.Context) []string {
	return f.ofReplicas(ctx, func(r status.Replica) []string { return []string{r.Name} })
}

// processNames are what forget-replica takes: a replica that was started anew has the name of the one before.
func (f *observerFlags) processNames(ctx context.Context) []string {
	return f.ofReplicas(ctx, func(r status.Replica) []string { return []string{r.Process()} })
}

func (f *observerFlags) controllerNames(ctx context.Context) []string {
	return f.ofReplicas(ctx, func(r status.Replica) (names []string) {
		for _, c := range r.Controllers {
			names = append(names, c.Name)
		}
		return names
	})
}

// standbyNames are the replicas to which a leader can hand over.
func (f *observerFlags) standbyNames(ctx context.Context) []string {
	return f.ofReplicas(ctx, func(r status.Replica) (names []string) {
		for _, s := range r.Election.Standbys {
			names = append(names, s.Replica)
		}
		return names
	})
}
