package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/cmd/server/workspaces"
)

// wsFlags say which kubeconfig commands about workspaces read and write.
type wsFlags struct {
	admin   adminFlags
	timeout time.Duration
}

// kubeconfig is where a user is.
type kubeconfig struct {
	config  *clientcmdapi.Config
	access  clientcmd.ConfigAccess
	context string
	place   workspaces.Place
	client  *workspaces.Client
}

func newWS() *cobra.Command {
	f := &wsFlags{}
	use := newWSUse(f)
	cmd := &cobra.Command{
		Use:   "ws [path]",
		Short: "Make workspaces, and enter them",
		Long: `Make workspaces, and enter them: the kubeconfig's current context leads to the one that was entered last. A path is
absolute (root:team-a), below the current workspace (web, team-a:web), the one above (..), root (:), this one (.) or the
previous one (-). regent ws <path> enters it. The contexts are those of kcp's plugin kubectl ws, so either can be used.
Installed under the name kubectl-ws, this program is kubectl ws.`,
		Example: `  regent ws create team-a --enter
  regent ws tree root
  regent ws ..
  regent ws kubeconfig root:team-a > team-a.kubeconfig`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return use.RunE(cmd, args)
		},
		ValidArgsFunction: f.completePath,
	}
	cmd.AddCommand(newWSCreate(f), use, newWSCurrent(f), newWSList(f), newWSTree(f), newWSDelete(f), newWSKubeconfig(f))
	for _, c := range append(cmd.Commands(), cmd) {
		f.admin.addTo(c.Flags(), "", "The kubeconfig's context to begin at. Default: the current one.")
		c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "How long to wait.")
	}
	return cmd
}

// open reads the kubeconfig.
func (f *wsFlags) open() (*kubeconfig, error) {
	if err := f.admin.check(); err != nil {
		return nil, err
	}
	rules := f.admin.rules()
	config, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig, give --kubeconfig: %w", err)
	}
	k := &kubeconfig{config: config, access: rules, context: f.admin.context}
	if k.context == "" {
		k.context = config.CurrentContext
	}
	if k.place, err = workspaces.PlaceOf(config, k.context); err != nil {
		return nil, err
	}
	if f.admin.server != "" {
		k.place.Base = strings.TrimSuffix(f.admin.server, "/")
	}
	rest, err := clientcmd.NewNonInteractiveClientConfig(*config, k.context, nil, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot use context %q of the kubeconfig: %w", k.context, err)
	}
	k.client = workspaces.NewClient(rest, k.place)
	return k, nil
}

// run opens the kubeconfig and does something with it, for as long as --timeout says.
func (f *wsFlags) run(do func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		k, err := f.open()
		if err != nil {
			return err
		}
		// What has begun is undone, or told, when the user gives up. The second time the process ends at once.
		ctx, stop := untilInterrupt(cmd.Context())
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("gave up after %v (--timeout)", f.timeout))
		defer cancel()
		return do(ctx, cmd, k, args)
	}
}

// resolve returns the path that the first argument names, and without one the current one.
func (k *kubeconfig) resolve(args []string) (logicalcluster.Path, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	path, err := k.place.Resolve(args[0])
	if err != nil {
		return path, usageError{err}
	}
	return path, nil
}

// enter writes into the kubeconfig that a workspace is the current one.
func (k *kubeconfig) enter(to workspaces.Place) error {
	workspaces.Enter(k.config, k.context, to)
	if err := clientcmd.ModifyConfig(k.access, *k.config, true); err != nil {
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return nil
}

func newWSUse(f *wsFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "use <path>",
		Aliases: []string{"cd", "enter"},
		Short:   "Enter a workspace",
		Args:    oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) (err error) {
			to := k.place
			if args[0] == "-" {
				to, err = workspaces.Previous(k.config)
			} else {
				to.Path, err = k.resolve(args)
			}
			if err != nil {
				return err
			}
			if err := k.client.CheckEntry(ctx, to.Path); err != nil {
				return err
			}
			if err := k.enter(to); err != nil {
				return err
			}
			return printLine(cmd, "Current workspace is %q.", to.Path)
		}),
		ValidArgsFunction: f.completePath,
	}
}

func newWSCurrent(f *wsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "current",
		Short: "Print the current workspace",
		Args:  noArgs,
		RunE: f.run(func(_ context.Context, cmd *cobra.Command, k *kubeconfig, _ []string) error {
			path, err := k.resolve(nil)
			if err != nil {
				return err
			}
			return printLine(cmd, "%s", path)
		}),
	}
}

func newWSCreate(f *wsFlags) *cobra.Command {
	var enter, existing bool
	cmd := &cobra.Command{
		Use:   "create <name>",
		Short: "Make a workspace in the current one, and wait until it is ready",
		Args:  oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			parent, ok := path.Parent()
			if !ok {
				return usageError{fmt.Errorf("%q is nothing that can be made: give a name, as in regent ws create team-a", path)}
			}
			began := time.Now()
			if err := k.client.Create(ctx, parent, path.Base()); err != nil && (!existing || !errors.Is(err, workspaces.ErrExists)) {
				return fmt.Errorf("%s: %w", path, err)
			}
			err = view.While(ctx, cmd.ErrOrStderr(), "Waiting for workspace "+path.String(), func(ctx context.Context) error {
				_, err := k.client.WaitReady(ctx, parent, path.Base())
				return err
			})
			if err != nil {
				return err
			}
			if err := printLine(cmd, "Workspace %q is ready after %v.", path, time.Since(began).Round(time.Millisecond)); err != nil || !enter {
				return err
			}
			if err := k.enter(k.place.At(path)); err != nil {
				return err
			}
			return printLine(cmd, "Current workspace is %q.", path)
		}),
	}
	cmd.Flags().BoolVar(&enter, "enter", false, "Enter it, too.")
	cmd.Flags().BoolVar(&existing, "ignore-existing", false, "Succeed if it is there already.")
	return cmd
}

func newWSList(f *wsFlags) *cobra.Command {
	format := view.Table
	cmd := &cobra.Command{
		Use:     "list [path]",
		Aliases: []string{"ls"},
		Short:   "List the workspaces in the current one",
		Args:    cobra.MaximumNArgs(1),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			if err := view.CheckFormat(format); err != nil {
				return usageError{err}
			}
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			list, err := k.client.List(ctx, path)
			if err != nil {
				return err
			}
			look := view.Look{Format: format, Now: time.Now()}
			if !look.IsFor() {
				return view.Encode(cmd.OutOrStdout(), format, objects(list))
			}
			return view.Workspaces(cmd.OutOrStdout(), look, path, list)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().StringVarP(&format, "output", "o", view.Table, "Format of the output.")
	complete(cmd, "output", func(context.Context) []string { return view.Formats })
	return cmd
}

// objects returns workspaces as the API has them, for programs.
func objects(list []workspaces.Listed) []tenancyv1alpha1.Workspace {
	out := make([]tenancyv1alpha1.Workspace, len(list))
	for i := range list {
		out[i] = list[i].Workspace
	}
	return out
}

func newWSTree(f *wsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "tree [path]",
		Short: "Show the current workspace with all those below it",
		Args:  cobra.MaximumNArgs(1),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			root := k.client.Tree(ctx, path)
			if root.Fault != nil {
				return root.Fault
			}
			look := view.Look{Format: view.Table, Now: time.Now(), Colour: isTerminal(cmd.OutOrStdout())}
			if err := view.WorkspaceTree(cmd.OutOrStdout(), look, root); err != nil || ctx.Err() == nil {
				return err
			}
			return fmt.Errorf("%w, before all workspaces were asked what is in them: begin further down, or wait longer", context.Cause(ctx))
		}),
		ValidArgsFunction: f.completePath,
	}
}

func newWSDelete(f *wsFlags) *cobra.Command {
	wait := true
	cmd := &cobra.Command{
		Use:     "delete <name>",
		Aliases: []string{"rm"},
		Short:   "Delete a workspace with all that is in it, and wait until it is gone",
		Args:    oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			parent, ok := path.Parent()
			if !ok || path == k.place.Path {
				return usageError{fmt.Errorf("%q cannot be deleted from here: leave it first (regent ws ..), and give its name", path)}
			}
			if err := k.client.Delete(ctx, parent, path.Base()); err != nil {
				return err
			}
			if !wait {
				return printLine(cmd, "Workspace %q is being deleted.", path)
			}
			err = view.While(ctx, cmd.ErrOrStderr(), "Waiting until workspace "+path.String()+" is gone", func(ctx context.Context) error {
				return k.client.WaitGone(ctx, parent, path.Base())
			})
			if err != nil {
				return err
			}
			return printLine(cmd, "Workspace %q is gone.", path)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "Wait until it is gone.")
	return cmd
}

func newWSKubeconfig(f *wsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig [path]",
		Short: "Print a kubeconfig that leads to one workspace, as the same user",
		Args:  cobra.MaximumNArgs(1),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			if err := k.client.CheckEntry(ctx, path); err != nil {
				return err
			}
			alone := workspaces.Alone(k.config, k.context, k.place.At(path))
			if err := clientcmdapi.FlattenConfig(&alone); err != nil {
				return fmt.Errorf("cannot read the files that the kubeconfig names: %w", err)
			}
			content, err := clientcmd.Write(alone)
			if err != nil {
				return fmt.Errorf("cannot encode the kubeconfig: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		}),
		ValidArgsFunction: f.completePath,
	}
}

// completePath completes the names of workspaces in the current one.
func (f *wsFlags) completePath(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	k, err := f.open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, _ := k.client.List(ctx, k.place.Path) // without an answer nothing is completed
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func printLine(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}
