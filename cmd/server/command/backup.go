package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/backups"
	"github.com/regent-project/regent/cmd/server/backups/s3"
	"github.com/regent-project/regent/cmd/server/bundles"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/status"
)

func newBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Keep a backup of a shard, and take workspaces from it",
		Long: `Follow a shard into a directory, so that each of its workspaces can be put back to what it was in any second since:
docs/BACKUP.md. What is kept is sealed by the shard for its --backup-recipients: who keeps it cannot read it.`,
		Example: `  regent backup key backup.key > backup.pub
  regent backup run /backup/root --store=https://s3.example/backups/root
  regent backup inspect /backup/root
  regent backup drill /backup/root --identity=backup.key
  regent backup fetch https://s3.example/backups/root /backup/fetched
  regent backup extract /backup/root root:team -f team.bundle --at=2026-11-30T10:00:00Z --identity=key.txt
  regent cluster restore root:team --backup=/backup/root --at=2026-11-30T10:00:00Z --identity=key.txt`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBackupKey(), newBackupRun(), newBackupFetch(), newBackupInspect(), newBackupExtract(), newBackupLoad(), newBackupDrill())
	return cmd
}

func newBackupKey() *cobra.Command {
	return &cobra.Command{
		Use:   "key <file>",
		Short: "Make the key that opens a backup, and print for whom it is sealed",
		Long: `Make a key in a file that only its owner may read, and print its recipient, for --backup-recipients of the shard's replicas.
It is a key of age: age-keygen makes the same. Without it nobody reads the backup: keep a copy elsewhere, and none where the
backup is.`,
		Example: `  regent backup key backup.key > backup.pub
  regent start --backup-recipients=$(cat backup.pub)`,
		Args: oneName("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := age.GenerateX25519Identity()
			if err != nil {
				return fmt.Errorf("make a key: %w", err)
			}
			if err := bundles.WriteFile(args[0], func(to io.Writer) error {
				_, err := fmt.Fprintf(to, "# opens what is sealed for %s\n%s\n", key.Recipient(), key)
				return err
			}); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Recipient())
			return err
		},
	}
}

func newBackupRun() *cobra.Command {
	f, o, s := &adminFlags{}, backups.RunOptions{}, storeFlags{}
	cmd := &cobra.Command{
		Use:   "run <directory>",
		Short: "Follow a shard into a directory",
		Long: `Follow a shard into a directory until SIGTERM or SIGINT: all that it stores once in a while (a base), and each change within
a second. It continues where it has ended, if etcd still has what was written meanwhile: five minutes at least. A shard needs
a directory of its own, which one process writes at a time. The user needs the right to get the path /regent/v1/backup in
system:admin, and no other one.

With --store, a store of S3 gets a copy of the directory. Its credentials are in the environment (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION), in ~/.aws/credentials, or those of the machine's role: docs/BACKUP.md.

Exit codes: 0 it was ended; 1 it cannot continue, and says why; 2 the arguments are wrong.`,
		Example: `  regent backup run /backup/root
  regent backup run /backup/root --store=https://s3.example/backups/root
  regent backup run /backup/eu1 --kubeconfig=eu1.kubeconfig --base-every=6h --keep=168h`,
		Args: oneName("directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.BaseEvery < 10*time.Second || o.Keep < o.BaseEvery {
				return usageError{fmt.Errorf("--base-every %v must be at least 10s, and --keep %v not less than it", o.BaseEvery, o.Keep)}
			}
			if s.url != "" {
				store, err := s.open(s.url)
				if err != nil {
					return err
				}
				o.Store = store
			}
			shard, err := f.shard()
			if err != nil {
				return err
			}
			return serve(func(ctx context.Context) error { return backups.Run(ctx, shard, args[0], o) })
		},
	}
	f.addTo(cmd.Flags(), defaultContext, "The kubeconfig's context, which leads to the shard, and not to a front.")
	cmd.Flags().DurationVar(&o.BaseEvery, "base-every", time.Hour, "How often all is read again. A restore reads one base and the changes since then.")
	cmd.Flags().DurationVar(&o.Keep, "keep", 48*time.Hour, "For how long one can go back. What is older is removed.")
	cmd.Flags().StringVar(&s.url, "store", "", "A prefix in a bucket of S3, https://HOST/BUCKET/PREFIX, which gets a copy of the directory. It is for this directory only. If empty, nothing does.")
	s.addTo(cmd)
	return cmd
}

// storeFlags say how a store is reached.
type storeFlags struct {
	url, caFile string
}

func (s *storeFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.caFile, "store-ca-file", "", "Further certificate authorities for the store's certificate. If empty, only those of the machine.")
}

func (s *storeFlags) open(url string) (*s3.Store, error) {
	store, err := s3.Open(url, s.caFile)
	if err != nil {
		return nil, usageError{err}
	}
	return store, nil
}

// isURL tells a store from a directory.
func isURL(text string) bool {
	return strings.HasPrefix(text, "https://") || strings.HasPrefix(text, "http://")
}

func newBackupFetch() *cobra.Command {
	s := storeFlags{}
	cmd := &cobra.Command{
		Use:   "fetch <URL> <directory>",
		Short: "Make a directory of the copy that a store has",
		Long: `Make a directory of the copy that regent backup run --store has put into a store of S3, and verify it: then regent backup
inspect, extract and load, and regent cluster restore take the directory. It must be empty, or not there. If the command is
ended before, run it again: it continues, and meanwhile nobody takes the directory for a backup. It needs no key, and the rights
to list and get objects. Credentials are where regent backup run has them.

Exit codes: 0 all is there, and is as it was written; 1 it is not; 2 the arguments are wrong; 3 it goes back to no time.`,
		Example: `  regent backup fetch https://s3.example/backups/root /backup/fetched`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || !isURL(args[0]) || isURL(args[1]) || args[1] == "" {
				return usageError{fmt.Errorf("%s takes a URL, https://HOST/BUCKET/PREFIX, and a directory", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := s.open(args[0])
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupt(cmd.Context())
			defer stop()
			found, err := backups.Fetch(ctx, store, args[1])
			if err != nil {
				return err
			}
			err = view.Backup(cmd.OutOrStdout(), view.Look{Format: view.Table, Now: time.Now()}, found)
			if err == nil && found.Last().IsZero() {
				err = problemsFound(status.Warning)
			}
			return err
		},
	}
	s.addTo(cmd)
	return cmd
}

// shard returns a client of what belongs to no logical cluster.
func (f *adminFlags) shard() (rest.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("the server that the kubeconfig names is no URL: %w", err)
	}
	to.Path, config.QPS = "", -1
	config.Host = to.String()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client.RESTClient(), nil
}

func newBackupInspect() *cobra.Command {
	format, verify, maxAge, s := view.Table, false, time.Duration(0), storeFlags{}
	cmd := &cobra.Command{
		Use:   "inspect <directory or URL>",
		Short: "Say to which times a backup can go back",
		Long: `Say to which times a backup can go back. It needs no key, and may be asked while the backup is written: with --max-age it
tells whether it is. Of a store it says what the listing says, and when something was last written: for all else fetch the
backup.

Exit codes: 0 all is well; 1 the backup is damaged, or there is none; 2 the arguments are wrong; 3 it goes back to no time,
the last one is older than --max-age, or a store lacks something.`,
		Example: `  regent backup inspect /backup/root --max-age=1m
  regent backup inspect https://s3.example/backups/root --max-age=1m
  regent backup inspect /backup/root --verify -o json`,
		Args: oneName("directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := view.CheckFormat(format); err != nil {
				return usageError{err}
			}
			if isURL(args[0]) {
				if verify {
					return usageError{errors.New("--verify reads a directory: regent backup fetch makes one of a store, and verifies it")}
				}
				return s.inspect(cmd, args[0], format, maxAge)
			}
			found, err := backups.Inspect(args[0], verify)
			if err != nil {
				return err
			}
			look := view.Look{Format: format, Now: time.Now()}
			if look.IsFor() {
				err = view.Backup(cmd.OutOrStdout(), look, found)
			} else {
				err = view.Encode(cmd.OutOrStdout(), format, found)
			}
			if err == nil && (found.Last().IsZero() || maxAge > 0 && time.Since(found.Last()) > maxAge) {
				err = problemsFound(status.Warning)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", view.Table, "Format of the output.")
	cmd.Flags().BoolVar(&verify, "verify", false, "Read everything, and compare it with its sums.")
	cmd.Flags().DurationVar(&maxAge, "max-age", 0, "How old the last time may be. 0: as old as it is.")
	s.addTo(cmd)
	complete(cmd, "output", func(context.Context) []string { return view.Formats })
	return cmd
}

// inspect says what a store has.
func (s *storeFlags) inspect(cmd *cobra.Command, url, format string, maxAge time.Duration) error {
	store, err := s.open(url)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	found, err := backups.InspectStore(ctx, store)
	if err != nil {
		return err
	}
	look := view.Look{Format: format, Now: time.Now()}
	if look.IsFor() {
		err = view.Store(cmd.OutOrStdout(), look, found)
	} else {
		err = view.Encode(cmd.OutOrStdout(), format, found)
	}
	if err == nil && (found.Bases == 0 || len(found.Gaps) > 0 || maxAge > 0 && look.Now.Sub(found.Written) > maxAge) {
		err = problemsFound(status.Warning)
	}
	return err
}

func newBackupLoad() *cobra.Command {
	f := momentFlags{}
	cmd := &cobra.Command{
		Use:   "load <directory> -- <flags of start>",
		Short: "Fill an empty etcd with a whole shard",
		Long: `Fill an empty etcd with a whole shard as it was at a time: all objects, with their uids. Behind -- are the flags with which
its replicas are started afterwards; none may run meanwhile. It takes the shard's keys (pki/ in the root directory, or the
membership) and the file of --encryption-provider-config: docs/BACKUP.md. Events are left out.

Exit codes: 0 everything is there; 1 it is not, and replicas refuse to start; 2 the arguments are wrong; 3 the backup has
objects that could not be read.`,
		Example: `  regent backup load /backup/root --identity=backup.key -- --root-directory=/var/lib/regent \
      --etcd-servers=https://etcd-0.example:2379`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() != 1 && (cmd.ArgsLenAtDash() >= 0 || len(args) > 1) {
				return usageError{errors.New("give the directory of the backup, and behind -- the flags of start")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			identities, at, err := f.read()
			if err != nil {
				return err
			}
			cfg, err := configOf(args[1:])
			if err != nil {
				return usageError{err}
			}
			shard, err := backups.OpenShard(args[0], at, identities, cfg.Shard)
			if err != nil {
				return err
			}
			return serve(func(ctx context.Context) error {
				if err := server.Load(ctx, cfg, shard.Each); err != nil {
					return err
				}
				return tellLoaded(cmd.OutOrStdout(), cfg.Shard, shard)
			})
		},
	}
	f.addAtTo(cmd)
	addIdentity(cmd, &f.identity)
	return cmd
}

func tellLoaded(to io.Writer, name string, l *backups.Shard) error {
	if _, err := fmt.Fprintf(to, "Shard %s at %s: %d objects, which it had at revision %d.\n", name, l.Time.UTC().Format(time.RFC3339), l.Objects, l.Revision); err != nil {
		return err
	}
	for _, key := range l.Left {
		_, _ = fmt.Fprintf(to, "  %s could not be read, and is not in it.\n", key)
	}
	if len(l.Left) > 0 {
		return problemsFound(status.Warning)
	}
	return nil
}

func newBackupDrill() *cobra.Command {
	f, maxAge := momentFlags{}, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "drill <directory>",
		Short: "Prove that a shard can be made of a backup",
		Long: `Prove that a shard can be made of a backup: fill an etcd that is thrown away, as regent backup load does, read back what is
in it, and compare. It reaches no server, and nobody serves what it makes, which is in a temporary directory (TMPDIR) for as
long as it takes, in plain text: have that where you may have the shard's Secrets. What a drill leaves that is killed, the next
one removes. It does not try the shard's keys, which a restore needs, too. Run it once in a while, where the backup's key is.

Exit codes: 0 the shard is as it was; 1 it is not, or nobody knows; 2 the arguments are wrong; 3 the backup has objects that
could not be read, or its last time is older than --max-age.`,
		Example: `  regent backup drill /backup/root --identity=backup.key
  regent backup drill /backup/root --identity=backup.key --at=2026-11-30T10:00:00Z`,
		Args: oneName("directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			identities, at, err := f.read()
			if err != nil {
				return err
			}
			found, err := backups.Inspect(args[0], false)
			if err != nil {
				return err
			}
			shard, err := backups.OpenShard(args[0], at, identities, found.Shard)
			if err != nil {
				return err
			}
			err = serve(func(ctx context.Context) error { return drill(ctx, cmd.OutOrStdout(), found.Shard, shard) })
			if age := time.Since(found.Last()); err == nil && maxAge > 0 && age > maxAge {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "The last time of the backup is %v ago: see why nothing came since.\n", age.Round(time.Second))
				err = problemsFound(status.Warning)
			}
			return err
		},
	}
	f.addAtTo(cmd)
	addIdentity(cmd, &f.identity)
	cmd.Flags().DurationVar(&maxAge, "max-age", 0, "How old the last time may be. 0: as old as it is.")
	return cmd
}

// drill makes a shard in a temporary directory, and says what has become of it.
func drill(ctx context.Context, out io.Writer, name string, shard *backups.Shard) error {
	return backups.WithScratch(func(directory string) error {
		cfg, err := configOf([]string{"--root-directory=" + directory, "--shard-name=" + name})
		if err != nil {
			return err
		}
		loading, reading, err := server.Drill(ctx, cfg, shard.Each)
		if err != nil {
			return err
		}
		if _, err = fmt.Fprintf(out, "Written in %v and read back in %v, and all is as it was.\n", loading.Round(10*time.Millisecond), reading.Round(10*time.Millisecond)); err != nil {
			return err
		}
		return tellLoaded(out, name, shard)
	})
}

// momentFlags say to what a backup goes back.
type momentFlags struct {
	at, identity string
}

func (f *momentFlags) addAtTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.at, "at", "", "The time to go back to, such as 2026-11-30T10:00:00Z. Default: the last one that the backup has.")
}

// extract writes the bundle of a workspace.
func (f *momentFlags) extract(directory string, path logicalcluster.Path, identities []age.Identity, sealTo []age.Recipient, to io.Writer) (*backups.Extracted, error) {
	at, err := f.time()
	if err != nil {
		return nil, err
	}
	return backups.Extract(directory, to, backups.ExtractOptions{Path: path, At: at, Identities: identities, SealTo: sealTo})
}

// read returns what opens the backup, and the time to go back to: zero for the last one.
func (f *momentFlags) read() ([]age.Identity, time.Time, error) {
	identities, err := bundles.ReadIdentities(f.identity)
	if err != nil {
		return nil, time.Time{}, usageError{err}
	}
	at, err := f.time()
	return identities, at, err
}

// time returns that to go back to, zero for the last one.
func (f *momentFlags) time() (time.Time, error) {
	if f.at == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, f.at)
	if err != nil {
		return at, usageError{fmt.Errorf("--at %q is no time, such as 2026-11-30T10:00:00Z or 2026-11-30T11:00:00.5+01:00", f.at)}
	}
	return at, nil
}

func newBackupExtract() *cobra.Command {
	f, file, unsealed := momentFlags{}, "", false
	var sealTo []string
	cmd := &cobra.Command{
		Use:   "extract <directory> <path>",
		Short: "Write a workspace as it was into a file",
		Long: `Write a workspace as it was at a time into a file, which is one of regent cluster export: import it, restore from it, or look
at it. It asks no server. The path is an absolute one, or the name of a logical cluster. Secrets are sealed for the recipients
that --seal-to names, or in plain text with --unsealed.

Exit codes: 0 the file is whole; 1 there is none; 2 the arguments are wrong; 3 it lacks objects that could not be read.`,
		Example: `  regent backup extract /backup/root root:team -f team.bundle --at=2026-11-30T10:00:00Z --identity=key.txt --unsealed`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := logicalcluster.NewPath(args[1])
			if file == "" || len(sealTo) == 0 != unsealed || !path.IsValid() {
				return usageError{errors.New("say which file to write (-f), what becomes of secrets (either --seal-to or --unsealed), and a path such as root:team")}
			}
			recipients, err := bundle.ParseRecipients(sealTo)
			if err != nil {
				return usageError{fmt.Errorf("--seal-to: %w", err)}
			}
			identities, err := bundles.ReadIdentities(f.identity)
			if err != nil {
				return usageError{err}
			}
			var out *backups.Extracted
			if err := bundles.WriteFile(file, func(to io.Writer) (err error) {
				out, err = f.extract(args[0], path, identities, recipients, to)
				return err
			}); err != nil {
				return err
			}
			return tellExtracted(cmd.OutOrStdout(), out)
		},
	}
	f.addAtTo(cmd)
	addIdentity(cmd, &f.identity)
	cmd.Flags().StringVarP(&file, "file", "f", "", "The file to write, which must not be there.")
	cmd.Flags().StringArrayVar(&sealTo, "seal-to", nil, "A recipient of age (age1...) for whom secrets are sealed. May be repeated.")
	cmd.Flags().BoolVar(&unsealed, "unsealed", false, "Have secrets in plain text.")
	return cmd
}

func tellExtracted(to io.Writer, e *backups.Extracted) error {
	if _, err := fmt.Fprintf(to, "Workspace %s at %s: %d objects, at revision %d.\n", e.Path, e.Time.UTC().Format(time.RFC3339), e.Objects, e.Revision); err != nil {
		return err
	}
	for _, key := range e.Unreadable {
		_, _ = fmt.Fprintf(to, "  %s could not be read, and is not in it.\n", key)
	}
	if len(e.Unreadable) > 0 {
		return problemsFound(status.Warning)
	}
	return nil
}
