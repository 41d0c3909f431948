package command

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/pki"
)

// pkiFlags are of all commands about keys.
type pkiFlags struct{ root string }

func newPKI() *cobra.Command {
	f := &pkiFlags{root: ".regent"}
	cmd := &cobra.Command{
		Use: "pki", Short: "Make and copy keys, renew certificates, and roll the certificate authority", Args: noCommand,
		Long: `Make, copy and renew what is in pki/ of a replica's root directory, and roll the certificate authority. Run it where the
key of the authority is, as the user that runs the replica, and copy pki/ to the root directories of the other replicas
afterwards. Replicas use the new files within seconds, without a restart.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.root, "root-directory", f.root, "The replica's root directory, with pki/ and admin.kubeconfig.")
	cmd.AddCommand(newPKIInit(f), newPKIInstall(f), newPKIRenew(f), newPKIRoll(f), newPKICertify(f))
	return cmd
}

func (f *pkiFlags) directory() string  { return filepath.Join(f.root, "pki") }
func (f *pkiFlags) kubeconfig() string { return filepath.Join(f.root, "admin.kubeconfig") }

func newPKIRenew(f *pkiFlags) *cobra.Command {
	var renewal pki.Renewal
	var format shardFlags
	cmd := &cobra.Command{
		Use: "renew", Short: "Renew certificates, with new keys", Args: noArgs,
		Long: `Renew the administrator's certificate, in pki/ and in admin.kubeconfig, with a new key. The old one is accepted until it
expires, or until the authority is rolled. Serving certificates are not in pki/: each replica makes its own, and renews it.`,
		Example: `  regent pki renew --before=720h -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if renewal.Before < 0 || cmd.Flags().Changed("before") && renewal.Before == 0 {
				return usageError{fmt.Errorf("--before %v must be above 0; leave it out to renew all", renewal.Before)}
			}
			if format.output != "table" && format.output != "json" {
				return usageError{fmt.Errorf("-o %q: give table or json", format.output)}
			}
			renewal.Kubeconfig = f.kubeconfig()
			all, err := pki.Renew(f.directory(), renewal)
			if err != nil {
				return err
			}
			return format.print(cmd, all, "CERTIFICATE\tOF\tEXPIRES\tACTION", func(w io.Writer) {
				for _, c := range all {
					action := c.Action
					switch {
					case c.Advice != "":
						action = c.Advice
					case renewal.DryRun && c.Action == pki.Renewed:
						action += " (dry run)" // as kubectl says it
					}
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.File, c.Subject, c.NotAfter.Format(time.RFC3339), action)
				}
			})
		},
	}
	cmd.Flags().DurationVar(&renewal.Before, "before", 0, "Renew only certificates that expire within this time, such as 720h.")
	cmd.Flags().BoolVar(&renewal.DryRun, "dry-run", false, "Print what would be done, without doing it.")
	format.addOutput(cmd)
	return cmd
}

func newPKIInit(f *pkiFlags) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the keys of a new shard, before its first replica starts", Args: noArgs,
		Long: `Make pki/ and admin.kubeconfig of a new shard, for replicas that all start with the same keys: copy pki/ to each, or mount
it from a Secret. Files that are there already are kept: with an authority of your own (ca.crt and ca.key) only the rest
is made.`,
		Example: `  regent pki init --root-directory=keys --shard-base-url=https://regent.example:6443
  kubectl create secret generic regent-pki --from-file=keys/pki`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			base = strings.TrimSuffix(base, "/")
			if u, err := url.Parse(base); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
				return usageError{fmt.Errorf("--shard-base-url %q is no URL of a shard: give https://<host>:<port>, as to the replicas", base)}
			}
			bundle, err := pki.Ensure(f.directory())
			if err != nil {
				return err
			}
			if _, err = pki.EnsureServiceAccountKey(f.directory()); err != nil {
				return err
			}
			_, err = bundle.WriteKubeconfig(f.kubeconfig(), pki.Kubeconfig{BaseURL: base, Replace: true})
			return confirm(cmd, err, "%s has the keys for all replicas, %s is the administrator's: both are secrets\n", f.directory(), f.kubeconfig())
		},
	}
	cmd.Flags().StringVar(&base, "shard-base-url", "", "URL under which clients reach the shard, for admin.kubeconfig.")
	return cmd
}

func newPKIInstall(f *pkiFlags) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "install", Short: "Copy keys to where only this user can read them", Args: noArgs,
		Long: `Copy the files of a directory to where only this user can read them. A replica refuses keys that others can read, as the
group can in a mounted Secret. Files and directories whose names begin with a dot are left out.`,
		Example: `  regent pki install --from=/secrets/pki --root-directory=/var/lib/regent`,
		RunE: func(*cobra.Command, []string) error {
			if from == "" {
				return usageError{errors.New("--from is missing: give the directory that has the files")}
			}
			if to == "" {
				to = f.directory()
			}
			return pki.Install(from, to)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "Directory with the files.")
	cmd.Flags().StringVar(&to, "to", "", "Directory to copy them to. Default: pki/ in the root directory.")
	return cmd
}

func newPKICertify(f *pkiFlags) *cobra.Command {
	return &cobra.Command{
		Use: "certify <membership>...", Short: "Bring memberships to the step of a roll that pki/ has reached",
		Long: `Bring memberships, which are files of regent shard add and regent front add, to the step of a roll that pki/ has reached:
what a member trusts, and which authority has signed its certificate. The files are replaced. Then give each member its
file, under the name by which it was started: it is used within seconds, without a restart. The member's key stays the
same, and so does a file that is at that step already.`,
		Example: `  regent pki certify eu1.yaml us1.yaml f1.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("give the files of memberships, as regent shard add and regent front add have printed them")}
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // files
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			bundle, err := pki.Read(f.directory())
			if err != nil {
				return err
			}
			for _, name := range args {
				member, err := bundle.CertifyFile(name)
				if err := confirm(cmd, err, "%s: give it to %s\n", name, member); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
