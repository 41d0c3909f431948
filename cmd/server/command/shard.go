package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
)

// shardTimeout is how long a command about shards may take.
const shardTimeout = time.Minute

// shardFlags are of all commands about shards.
type shardFlags struct {
	admin  adminFlags
	output string
}

func newShard() *cobra.Command {
	f := &shardFlags{}
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "Add, list, cordon, drain and remove the shards of an installation",
		Long: `Add, list, cordon, drain and remove the shards of an installation: several shards with one tree of workspaces. A shard that is
started alone becomes the root shard of an installation as soon as another one is added.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.addTo(cmd.PersistentFlags())
	cmd.AddCommand(newShardAdd(f), newShardList(f), newShardSet(f), newShardCordon(f, "cordon", true), newShardCordon(f, "uncordon", false), newShardDrain(f), newShardRemove(f), newShardOrphans(f), newShardReconcile(f))
	return cmd
}

func (f *shardFlags) addTo(flags *pflag.FlagSet) {
	f.admin.addTo(flags, "root", "The kubeconfig's context.")
}

// shardNames and frontNames are completed. The flags are read only then.
func (f *shardFlags) shardNames(ctx context.Context) []string {
	return (&observerFlags{admin: f.admin}).shardNames(ctx)
}

func (f *shardFlags) frontNames(ctx context.Context) []string {
	return (&observerFlags{admin: f.admin}).frontNames(ctx)
}

// run calls do with the installation's administrator.
func (f *shardFlags) run(cmd *cobra.Command, do func(context.Context, *installation.Admin) error) error {
	admin, err := f.admin.ofInstallation()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), shardTimeout)
	defer cancel()
	return view.While(ctx, cmd.ErrOrStderr(), "Waiting for the installation's shards", func(ctx context.Context) error { return do(ctx, admin) })
}

// runUntil calls do with the installation's administrator, until the user interrupts it or the time is up.
func (f *shardFlags) runUntil(cmd *cobra.Command, timeout time.Duration, do func(context.Context, *installation.Admin) error) error {
	admin, err := f.admin.ofInstallation()
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("gave up after %v (--timeout)", timeout))
	defer cancel()
	return do(ctx, admin)
}

func newShardAdd(f *shardFlags) *cobra.Command {
	add, keys := installation.Addition{}, ".regent/pki"
	cmd := &cobra.Command{
		Use:   "add <shard>",
		Short: "Make a shard a member, and print the membership with which its replicas join",
		Long: `Make a shard a member of the installation, and print the membership with which its replicas join: regent start
--membership=<file>. The file has a key by which the shard proves its identity: keep it as a secret. Run this where the key
of the installation's certificate authority is.`,
		Example: `  regent shard add eu1 --replica=https://10.0.1.1:6443 --replica=https://10.0.1.2:6443 --label=region=eu > eu1.yaml`,
		Args:    oneName("shard"),
		RunE: func(cmd *cobra.Command, args []string) error {
			add.Name = args[0]
			bundle, err := pki.Open(keys)
			if err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				membership, err := admin.Add(ctx, bundle, add)
				if err != nil {
					return err
				}
				return printMembership(cmd, membership)
			})
		},
	}
	cmd.Flags().StringArrayVar(&add.Replicas, "replica", nil, "URL of a replica of the shard, as other shards and fronts reach it. May be given several times.")
	cmd.Flags().StringToStringVar(&add.Labels, "label", nil, "Labels of the shard, as in region=eu: workspaces select shards by them.")
	cmd.Flags().BoolVar(&add.Renew, "renew", false, "Print a new membership of a shard that is a member already. The old one is refused from now on.")
	cmd.Flags().StringVar(&keys, "pki-directory", keys, "Directory with the key of the installation's certificate authority: pki/ of the root shard.")
	return cmd
}

func printMembership(cmd *cobra.Command, membership *pki.Membership) error {
	content, err := membership.Encode()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(content)
	return err
}

func newShardSet(f *shardFlags) *cobra.Command {
	var replicas []string
	var labels map[string]string
	cmd := &cobra.Command{
		Use:     "set <shard>",
		Short:   "Change the URLs of a shard's replicas, or its labels",
		Example: `  regent shard set root --replica=https://10.0.0.1:6443 --replica=https://10.0.0.2:6443`,
		Args:    oneName("shard"), ValidArgsFunction: completes(f.shardNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(replicas) == 0 && len(labels) == 0 {
				return usageError{errors.New("give --replica or --label: see regent shard set --help")}
			}
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				return confirm(cmd, admin.Set(ctx, args[0], replicas, labels), "shard %s is changed\n", args[0])
			})
		},
	}
	cmd.Flags().StringArrayVar(&replicas, "replica", nil, "URL of a replica of the shard, as other shards and fronts reach it. May be given several times; replaces all earlier ones.")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "Labels to set, as in region=eu. An empty value removes the label.")
	return cmd
}

func newShardCordon(f *shardFlags, name string, cordoned bool) *cobra.Command {
	short, done := "Let a shard take no new logical clusters", "shard %s takes no new logical clusters\n"
	if !cordoned {
		short, done = "Let a shard take new logical clusters again", "shard %s takes new logical clusters\n"
	}
	return &cobra.Command{
		Use: name + " <shard>", Short: short, Args: oneName("shard"), ValidArgsFunction: completes(f.shardNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				return confirm(cmd, admin.Cordon(ctx, args[0], cordoned), done, args[0])
			})
		},
	}
}

func newShardRemove(f *shardFlags) *cobra.Command {
	return &cobra.Command{
		Use: "remove <shard>", Short: "Take a shard without logical clusters out of the installation", Args: oneName("shard"), ValidArgsFunction: completes(f.shardNames),
		Long: `Take a shard out of the installation. The command cordons the shard, and fails while the shard has logical clusters. From
then on no other shard reads from it, and it may read from none. Its name is not used again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				return confirm(cmd, admin.Remove(ctx, args[0]), "shard %s is removed: stop its replicas\n", args[0])
			})
		},
	}
}

// drainTimeout is how long a drain may take by default: a shard may have many workspaces.
const drainTimeout = 24 * time.Hour

func newShardDrain(f *shardFlags) *cobra.Command {
	var to []string
	atOnce, pause, timeout := 2, time.Duration(0), drainTimeout
	cmd := &cobra.Command{
		Use: "drain <shard>", Short: "Move all workspaces of a shard to others", Args: oneName("shard"), ValidArgsFunction: completes(f.shardNames),
		Long: `Move all workspaces of a shard to others, while they are used: docs/MOVING.md. The command cordons the shard. Each workspace
goes to the shard that then has the least, of those that --to names, or of all that are not cordoned. What does not move is
told, and stays; drain the shard again. Then regent shard remove takes it out of the installation.`,
		Example: `  regent shard drain eu1
  regent shard drain eu1 --to=eu2 --to=eu3 --at-once=4
  regent shard drain eu1 --at-once=1 --pause=10s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n := 0
			err := f.runUntil(cmd, timeout, func(ctx context.Context, admin *installation.Admin) error {
				return admin.Drain(ctx, args[0], to, atOnce, pause, func(moved *installation.Moved, of int, err error) {
					if err != nil {
						_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", err)
						return
					}
					n++
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d of %d: ", n, of)
					tellMoved(cmd.OutOrStdout(), moved)
				})
			})
			return confirm(cmd, err, "%d workspaces have left shard %s: regent shard remove %s takes it out of the installation\n", n, args[0], args[0])
		},
	}
	cmd.Flags().StringArrayVar(&to, "to", nil, "A shard to move workspaces to. May be repeated. Default: all that are not cordoned.")
	cmd.Flags().IntVar(&atOnce, "at-once", atOnce, "How many move at the same time.")
	cmd.Flags().DurationVar(&pause, "pause", 0, "How long to wait before each next one begins to move.")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long it may take.")
	return cmd
}

// confirm prints what was done, unless it failed.
func confirm(cmd *cobra.Command, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), format, args...)
	return err
}

func newShardList(f *shardFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the shards of the installation", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func(ctx context.Context, admin *installation.Admin) error {
				shards, err := admin.List(ctx)
				if err != nil {
					return err
				}
				return f.print(cmd, shards, "NAME\tCLUSTERS\tCAPACITY\tSTATE\tREPLICAS", func(w io.Writer) {
					for _, s := range shards {
						clusters, capacity := fmt.Sprint(s.Clusters), fmt.Sprint(s.Capacity)
						if s.Fault != "" {
							clusters, capacity = "-", "-"
						}
						_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Name, clusters, capacity, stateOf(s), strings.Join(s.Replicas, ","))
						if s.Fault != "" {
							_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "shard %s does not answer: %s\n", s.Name, s.Fault)
						}
					}
				})
			})
		},
	}
	f.addOutput(cmd)
	return cmd
}

// stateOf returns the state of a shard in a word or two.
func stateOf(s installation.Shard) string {
	var words []string
	if s.Root {
		words = append(words, "root")
	}
	if s.Cordoned {
		words = append(words, "cordoned")
	}
	if s.Fault != "" {
		words = append(words, "does not answer")
	}
	if len(words) == 0 {
		return "ok"
	}
	return strings.Join(words, ", ")
}

func (f *shardFlags) addOutput(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "Format of the output: table or json.")
}

// print prints a value in the wanted format.
func (f *shardFlags) print(cmd *cobra.Command, value any, head string, rows func(io.Writer)) error {
	switch f.output {
	case "json":
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		return out.Encode(value)
	case "table":
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintln(w, head)
		rows(w)
		return w.Flush()
	}
	return usageError{fmt.Errorf("-o %q: give table or json", f.output)}
}
