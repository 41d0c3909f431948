package command

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/bundles"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/status"
)

// restoreFlags are those of `cluster restore`.
type restoreFlags struct {
	bundles.RestoreOptions
	momentFlags
	file, backup string
	ago          time.Duration
	exact        bool
}

func newClusterRestore(f *wsFlags) *cobra.Command {
	r := &restoreFlags{}
	cmd := &cobra.Command{
		Use:   "restore <path>",
		Short: "Put a workspace, or some of its objects, back to what they were",
		Long: `Put the objects of a workspace back to what a file of regent cluster export has of it (-f), to what they were a moment
ago (--ago), or at a time that a backup has (--backup, --at). What is missing is created, with a new uid; what has changed
is updated; with --prune what is new is deleted. It is done through the API, by the user of the kubeconfig. With --exact
all is as it was, with uids, and what is new is deleted: no admission checks that, so members of system:masters may do it.

Exit codes: 0 all is as it was; 1 nothing was done, or not everything; 2 the arguments are wrong; 3 some objects were refused.`,
		Example: `  regent cluster restore root:team --ago=2m --plan
  regent cluster restore root:team --ago=2m --namespace=shop
  regent cluster restore root:team -f team.bundle --only=core/configmaps/shop/settings --identity=key.txt`,
		Args: oneName("workspace"),
		RunE: f.run(func(ctx context.Context, cmd *cobra.Command, k *kubeconfig, args []string) error {
			path, err := k.resolve(args)
			if err != nil {
				return err
			}
			return r.restore(ctx, cmd, k, path)
		}),
		ValidArgsFunction: f.completePath,
	}
	addAgo(cmd, &r.ago)
	r.addAtTo(cmd)
	addIdentity(cmd, &r.identity)
	cmd.Flags().StringVarP(&r.file, "file", "f", "", "The file with the bundle.")
	cmd.Flags().StringVar(&r.backup, "backup", "", "The directory of regent backup run, to go back to --at.")
	cmd.Flags().StringArrayVar(&r.Only, "only", nil, "Only the object of this key, or with a slash at its end all objects whose keys begin with it. May be repeated.")
	cmd.Flags().StringVar(&r.Namespace, "namespace", "", "Only this namespace, with all that is in it.")
	cmd.Flags().BoolVar(&r.Prune, "prune", false, "Delete what was not there then.")
	cmd.Flags().BoolVar(&r.exact, "exact", false, "As it was, with uids, while all other writes wait.")
	cmd.Flags().BoolVar(&r.Plan, "plan", false, "Say what would be done, and do nothing.")
	return cmd
}

func (r *restoreFlags) restore(ctx context.Context, cmd *cobra.Command, k *kubeconfig, path logicalcluster.Path) error {
	ways := 0
	for _, given := range []bool{r.file != "", r.ago > 0, r.backup != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 || r.at != "" && r.backup == "" {
		return usageError{errors.New("say what to go back to: either -f team.bundle, or --ago=2m, or --backup=/backup/root with --at=2026-11-30T10:00:00Z")}
	}
	identities, err := bundles.ReadIdentities(r.identity)
	if err != nil {
		return usageError{err}
	}
	return aside(func(a *asideFiles) (err error) {
		r.Identities = slices.Concat(identities, a.identities)
		then, err := r.then(ctx, k, a, path, identities)
		if err != nil {
			return err
		}
		if r.file != "" {
			defer func() { err = errors.Join(err, then.Close()) }()
		}
		of, err := then.Of(path)
		if err != nil {
			return err
		}
		var report *bundles.Restored
		err = view.While(ctx, cmd.ErrOrStderr(), "Restoring "+path.String(), func(ctx context.Context) (err error) {
			export := func(ctx context.Context, revision int64) (*bundle.Bundle, error) {
				now, err := a.export(ctx, k, "now", path, bundles.ExportOptions{Revision: revision})
				if err != nil {
					return nil, err
				}
				return now.Bundles[0], nil
			}
			if r.exact {
				report, err = bundles.RestoreExactly(ctx, k.client, of, export, path, r.RestoreOptions)
				return err
			}
			now, err := export(ctx, 0)
			if err == nil {
				report, err = bundles.Restore(ctx, k.client, of, now, path, r.RestoreOptions)
			}
			return err
		})
		if report == nil {
			return err
		}
		if shown := view.Restored(cmd.OutOrStdout(), view.Look{Format: view.Table, Now: time.Now()}, path, report, r.Plan); err == nil {
			err = shown
		}
		if err == nil && len(report.Refused) > 0 {
			err = problemsFound(status.Warning)
		}
		return err
	})
}

// then returns the file to go back to.
func (r *restoreFlags) then(ctx context.Context, k *kubeconfig, a *asideFiles, path logicalcluster.Path, identities []age.Identity) (*bundles.File, error) {
	switch {
	case r.file != "":
		return bundles.OpenFile(r.file)
	case r.backup != "":
		return a.write("then", func(to io.Writer) error {
			_, err := r.extract(r.backup, path, identities, []age.Recipient{a.recipient}, to)
			return err
		})
	}
	file, err := a.export(ctx, k, "then", path, bundles.ExportOptions{Ago: r.ago})
	if err != nil {
		return nil, err
	}
	return file.File, nil
}
