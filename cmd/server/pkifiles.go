package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/pki"
)

func newPKIInit(f *pkiFlags) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the keys of a new shard, before its first replica starts", Args: noArgs,
		Long: `Make pki/ and admin.kubeconfig of a new shard, for replicas that all start with the same keys: copy pki/ to each, or have it mounted from a
Secret. What is there already is kept: with an authority of your own (ca.crt and ca.key) the rest is made.`,
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
			return told(cmd, err, "%s has the keys for all replicas, %s is the administrator's: both are secrets\n", f.directory(), f.kubeconfig())
		},
	}
	cmd.Flags().StringVar(&base, "shard-base-url", "", "URL under which clients reach the shard, for admin.kubeconfig.")
	return cmd
}

func newPKIInstall(f *pkiFlags) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "install", Short: "Copy keys to where only this user can read them", Args: noArgs,
		Long: `Copy the files of a directory to where only this user can read them. A replica refuses keys that others may read, as the group may in a mounted
Secret. Files and directories whose names begin with a dot are left out.`,
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
	cmd.Flags().StringVar(&from, "from", "", "Directory that has the files.")
	cmd.Flags().StringVar(&to, "to", "", "Directory to which to copy them. Default: pki/ in the root directory.")
	return cmd
}
