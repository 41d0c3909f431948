package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/bundles"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/status"
)

func newCluster() *cobra.Command {
	f := &wsFlags{}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Export, import, clone, restore and move workspaces",
		Long: `Export workspaces with all that is in them into files, and import these as new workspaces, here or in another
installation; put a workspace back to what a file has, or to what it was a minute ago: docs/BUNDLES.md; move it to another shard: docs/MOVING.md.
Whoever may do everything in a workspace may export it. Paths are as for regent ws.`,
		Example: `  regent cluster export root:team -f team.bundle --seal-to=age1...
  regent cluster inspect team.bundle
  regent cluster import team.bundle root:team-again --identity=key.txt
  regent cluster clone root:template root:new
  regent cluster restore root:team --ago=2m --plan
  regent cluster move root:team --to=eu1`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	online := []*cobra.Command{newClusterExport(f), newClusterImport(f), newClusterClone(f), newClusterRestore(f), newClusterMove(f)}
	cmd.AddCommand(append(online, newClusterInspect())...)
	for _, c := range online {
		f.admin.addTo(c.Flags(), "", "The kubeconfig's context to begin at. Default: the current one.")
		c.Flags().DurationVar(&f.timeout, "timeout", time.Hour, "How long it may take.")
	}
	return cmd
}

func newClusterExport(f *wsFlags) *cobra.Command {
	var file string
	var o bundles.ExportOptions
	cmd := &cobra.Command{
		Use:   "export [path]",
		Short: "Write a workspace with all that is in it into a file",
		Long: `Write a workspace with all that is in it into a file, as it is at one moment. Nobody waits for it, and it continues if a
replica ends. Secrets, and what is encrypted in etcd, are sealed for the recipients that --seal-to names (age-keygen makes
one), or in plain text with --unsealed: without either, a workspace with secrets is not exported.

Exit codes: 0 the file is whole; 1 there is none; 2 the arguments are wrong; 3 it lacks objects that could not be
read, or workspaces that the user may not export.`,
		Example: `  regent cluster export root:team -f team.bundle --seal-to=age1...
  regent cluster export root:team -f team.bundle --recursive --unsealed`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			return export(ctx, cmd, k, path, file, o)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "The file to write, which must not be there; - for the standard output.")
	cmd.Flags().BoolVar(&o.Recursive, "recursive", false, "With all workspaces below it, each as it is at a moment of its own.")
	addAgo(cmd, &o.Ago)
	cmd.Flags().StringArrayVar(&o.SealTo, "seal-to", nil, "A recipient of age (age1...) for whom secrets are sealed. May be repeated.")
	cmd.Flags().BoolVar(&o.Unsealed, "unsealed", false, "Have secrets in plain text.")
	return cmd
}

// export writes a file, and says what is in it.
func export(ctx context.Context, cmd *cobra.Command, k *kubeconfig, path logicalcluster.Path, name string, o bundles.ExportOptions) error {
	if err := checkExport(cmd.OutOrStdout(), name, o); err != nil {
		return usageError{err}
	}
	var all []*bundles.Exported
	write := func(to io.Writer) (err error) {
		return view.While(ctx, cmd.ErrOrStderr(), "Exporting "+path.String(), func(ctx context.Context) error {
			all, err = bundles.Export(ctx, k.client, path, to, o)
			return err
		})
	}
	about := cmd.OutOrStdout()
	var err error
	if name == "-" {
		about, err = cmd.ErrOrStderr(), write(cmd.OutOrStdout())
	} else {
		err = bundles.WriteFile(name, write)
	}
	if err != nil {
		return err
	}
	return tellExported(about, all, o.Recursive)
}

func checkExport(stdout io.Writer, name string, o bundles.ExportOptions) error {
	switch {
	case name == "":
		return errors.New("say which file to write: -f team.bundle, or -f - for the standard output")
	case o.Ago < 0:
		return fmt.Errorf("--ago %v must not be negative", o.Ago)
	case name == "-" && isTerminal(stdout):
		return errors.New("a bundle is nothing to be shown on a terminal: give a file, or a pipe")
	case o.Unsealed && len(o.SealTo) > 0:
		return errors.New("--unsealed and --seal-to are both given: a bundle is sealed or it is not")
	}
	if _, err := bundle.ParseRecipients(o.SealTo); err != nil {
		return fmt.Errorf("--seal-to: %w", err)
	}
	return nil
}

func tellExported(to io.Writer, all []*bundles.Exported, recursive bool) error {
	lacks := 0
	for _, one := range all {
		if _, err := fmt.Fprintf(to, "Workspace %s: %d objects, at revision %d.\n", one.Path, one.Objects, one.Revision); err != nil {
			return err
		}
		for _, key := range one.Unreadable {
			lacks++
			_, _ = fmt.Fprintf(to, "  %s cannot be read, and is not in it: an administrator finds it in etcd (docs/OPERATIONS.md).\n", key)
		}
		for _, below := range one.Below {
			switch {
			case below.Left != "":
				if below.Lacks {
					lacks++
				}
				_, _ = fmt.Fprintf(to, "  Workspace %s below it is not exported: %s.\n", below.Name, below.Left)
			case !recursive:
				_, _ = fmt.Fprintf(to, "  Workspace %s below it is not exported: give --recursive.\n", below.Name)
			}
		}
	}
	if lacks > 0 {
		return problemsFound(status.Warning)
	}
	return nil
}

func newClusterInspect() *cobra.Command {
	format, identity := view.Table, ""
	cmd := &cobra.Command{
		Use:   "inspect <file> [key]",
		Short: "Check a bundle, and say what is in it",
		Long: `Check that a file with bundles is whole and not damaged, and say what is in it. With the key of an object, such as
core/configmaps/default/settings or custom/example.com/Widget/default/a, print that object as JSON.

Exit codes: 0 the file is whole; 1 it is damaged, or has no such object; 2 the arguments are wrong.`,
		Example: `  regent cluster inspect team.bundle
  regent cluster inspect team.bundle core/configmaps/default/settings`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := view.CheckFormat(format); err != nil {
				return usageError{err}
			}
			identities, err := bundles.ReadIdentities(identity)
			if err != nil {
				return usageError{err}
			}
			file, err := bundles.OpenFile(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			if len(args) == 2 {
				return file.Show(cmd.OutOrStdout(), args[1], identities)
			}
			all, err := file.Inspect()
			if err != nil {
				return err
			}
			look := view.Look{Format: format, Now: time.Now()}
			if !look.IsFor() {
				return view.Encode(cmd.OutOrStdout(), format, all)
			}
			return view.Bundles(cmd.OutOrStdout(), look, all)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", view.Table, "Format of the output.")
	addIdentity(cmd, &identity)
	complete(cmd, "output", func(context.Context) []string { return view.Formats })
	return cmd
}

func addAgo(cmd *cobra.Command, ago *time.Duration) {
	cmd.Flags().DurationVar(ago, "ago", 0, "As it was so long ago. etcd knows the last five minutes at least.")
}

func addIdentity(cmd *cobra.Command, identity *string) {
	cmd.Flags().StringVar(identity, "identity", "", "A file with an identity of age (AGE-SECRET-KEY-...), for what is sealed.")
}

func newClusterImport(f *wsFlags) *cobra.Command {
	var identity string
	var exact bool
	o := bundles.ImportOptions{}
	cmd := &cobra.Command{
		Use:   "import <file> [path]",
		Short: "Make a new workspace of a file",
		Long: `Make a new workspace of a file that regent cluster export has written; without a path, where it was. Objects are created
through the API, with new uids, by the user of the kubeconfig: what that user may not create is refused and listed. Owners,
and bindings to exports of workspaces in the same file, lead to the new ones. Nothing is made of a damaged file. With
--exact workspaces that were deleted are back where they were, with uids, so that tokens are good again: no admission checks
that, so members of system:masters may do it. With --unchecked the same holds for ConfigMaps, Secrets and custom objects,
which get new uids all the same, and take a fraction of the time.

Exit codes: 0 everything is there; 1 the import has stopped, and what it made is still there; 2 the arguments are wrong;
3 some objects were refused.`,
		Example: `  regent cluster import team.bundle
  regent cluster import team.bundle root:team-again --identity=key.txt`,
		Args: cobra.RangeArgs(1, 2),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) (err error) {
			if exact && o.Unchecked {
				return usageError{errors.New("--exact writes everything as it was: leave --unchecked out")}
			}
			if o.Identities, err = bundles.ReadIdentities(identity); err != nil {
				return usageError{err}
			}
			file, err := bundles.OpenFile(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			to := file.Bundles[0].Path
			if len(args) == 2 {
				to = args[1]
			}
			path, err := k.resolve([]string{to})
			if err != nil {
				return err
			}
			if exact && path.String() != file.Bundles[0].Path {
				return usageError{fmt.Errorf("with --exact it comes back where it was, at %s: leave the path out", file.Bundles[0].Path)}
			}
			return importInto(ctx, cmd, k, file, path, exact, o)
		}),
	}
	addIdentity(cmd, &identity)
	cmd.Flags().BoolVar(&exact, "exact", false, "As it was, with uids, where it was.")
	addUnchecked(cmd, &o)
	return cmd
}

func addUnchecked(cmd *cobra.Command, o *bundles.ImportOptions) {
	cmd.Flags().BoolVar(&o.Unchecked, "unchecked", false, "Write ConfigMaps, Secrets and custom objects past all checks, as --exact does, but with new uids: faster, for files that you trust.")
}

// importInto makes a workspace, or takes it in as it was, and says what has become of the objects.
func importInto(ctx context.Context, cmd *cobra.Command, k *kubeconfig, file *bundles.File, to logicalcluster.Path, exact bool, o bundles.ImportOptions) error {
	var report *bundles.Report
	err := view.While(ctx, cmd.ErrOrStderr(), "Importing into "+to.String(), func(ctx context.Context) (err error) {
		if exact {
			report, err = bundles.ImportExactly(ctx, k.client, file.Bundles, o)
			return err
		}
		report, err = bundles.Import(ctx, k.client, file.Bundles, to, o)
		return err
	})
	if shown := view.Imported(cmd.OutOrStdout(), view.Look{Format: view.Table, Now: time.Now()}, to, report); err == nil {
		err = shown
	}
	if err != nil {
		return err
	}
	if len(report.Refused) > 0 {
		return problemsFound(status.Warning)
	}
	return nil
}

func newClusterClone(f *wsFlags) *cobra.Command {
	var recursive bool
	o := bundles.ImportOptions{}
	cmd := &cobra.Command{
		Use:   "clone <path> <new path>",
		Short: "Make a new workspace that has what another one has",
		Long: `Make a new workspace that has what another one has at this moment. It is an export and an import in one: see these. The
file between them is temporary, and its secrets are sealed with a key that never leaves this process.

Exit codes: those of regent cluster import.`,
		Example: `  regent cluster clone root:template root:new`,
		Args:    cobra.ExactArgs(2),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			from, err := k.resolve(args[:1])
			if err != nil {
				return err
			}
			to, err := k.resolve(args[1:])
			if err != nil {
				return err
			}
			return clone(ctx, cmd, k, from, to, recursive, o)
		}),
		ValidArgsFunction: f.completePath,
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "With all workspaces below it.")
	addUnchecked(cmd, &o)
	return cmd
}

func clone(ctx context.Context, cmd *cobra.Command, k *kubeconfig, from, to logicalcluster.Path, recursive bool, o bundles.ImportOptions) error {
	return aside(func(a *asideFiles) error {
		file, err := a.export(ctx, k, "bundle", from, bundles.ExportOptions{Recursive: recursive})
		if err != nil {
			return err
		}
		if err := tellExported(cmd.OutOrStdout(), file.exported, recursive); err != nil {
			return err
		}
		o.Identities = a.identities
		return importInto(ctx, cmd, k, file.File, to, false, o)
	})
}
