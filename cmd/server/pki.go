package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/pki"
)

// pkiFlags are of all commands about keys.
type pkiFlags struct{ root string }

func newPKI() *cobra.Command {
	f := &pkiFlags{root: ".regent"}
	cmd := &cobra.Command{
		Use: "pki", Short: "Make and copy keys, renew certificates, and roll the certificate authority", Args: noCommand,
		Long: `Renew the certificates in pki/ of a replica's root directory, and roll the certificate authority. Run it where the key of the authority is, as the
user who runs the replica, and copy pki/ to the root directories of the other replicas afterwards. Replicas use what is there within seconds, without
a restart.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.root, "root-directory", f.root, "The replica's: it has pki/ and admin.kubeconfig.")
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
		Long: `Renew the administrator's certificate, in pki/ and in admin.kubeconfig, with a new key. The old one is accepted until it expires, or until the
authority is rolled. Serving certificates are not in pki/: each replica makes its own, and renews it.`,
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
	cmd.Flags().DurationVar(&renewal.Before, "before", 0, "Renew only what expires within this time, such as 720h.")
	cmd.Flags().BoolVar(&renewal.DryRun, "dry-run", false, "Print what would be done, and change nothing.")
	format.addOutput(cmd)
	return cmd
}

// rollFlags are of the steps of a roll.
type rollFlags struct {
	*pkiFlags
	servers []string
	fronts  []string
	offline bool
}

func newPKIRoll(keys *pkiFlags) *cobra.Command {
	f := &rollFlags{pkiFlags: keys}
	cmd := &cobra.Command{
		Use: "roll", Short: "Exchange the certificate authority of a shard or an installation, with clients connected", Args: noCommand,
		Long: `Exchange the certificate authority of a shard, or of an installation, step by step, with clients connected. After each step copy pki/ to the
other replicas, and give the members of an installation their memberships anew: regent pki certify.

  begin    makes a new authority. Both are trusted, and the old one signs. Give clients the new pki/ca.crt, which has both.
  switch   has the new authority sign. Both are trusted. Give clients new certificates.
  finish   drops the old authority: nobody trusts what it has signed.
  abort    drops the new authority instead, as long as it does not sign.

A step asks all replicas, and all fronts that --front names, whether the step before has reached them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.addTo(cmd.PersistentFlags())
	cmd.AddCommand(
		f.step(pki.Begin, "Make a new authority, and trust it beside the old one", "both authorities are trusted, and the old one signs: copy pki/ to the other replicas, give members their memberships (regent pki certify) and clients pki/ca.crt, then run regent pki roll switch"),
		f.step(pki.Switch, "Have the new authority sign", "the new authority signs, and both are trusted: copy pki/ to the other replicas, give members their memberships (regent pki certify) and clients new certificates, then run regent pki roll finish"),
		f.step(pki.Finish, "Drop the old authority", "the old authority is trusted no more: copy pki/ to the other replicas, and give members their memberships (regent pki certify)"),
		f.step(pki.Abort, "Drop the new authority, as long as it does not sign", "the roll is undone: copy pki/ to the other replicas, remove roll.json there, and give members their memberships (regent pki certify)"),
	)
	return cmd
}

func (f *rollFlags) addTo(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.servers, "server", nil, "URL of a replica to ask, such as https://10.0.0.1:6443. Once for each replica. Default: the server that admin.kubeconfig names.")
	flags.StringArrayVar(&f.fronts, "front", nil, "URL of a front to ask, such as https://10.0.0.1:6443. Once for each process. An installation's steps are refused until all fronts were asked.")
	flags.BoolVar(&f.offline, "offline", false, "Do not ask anybody. Use it only if no replica and no front runs.")
}

func (f *rollFlags) step(s pki.Step, short, next string) *cobra.Command {
	return &cobra.Command{
		Use: s.Does, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.offline {
				ctx, cancel := context.WithTimeout(cmd.Context(), shardTimeout)
				defer cancel()
				if err := view.While(ctx, cmd.ErrOrStderr(), "Waiting for all replicas and fronts to say that the step before has reached them", func(ctx context.Context) error {
					return f.ask(ctx, s)
				}); err != nil {
					return err
				}
			}
			return told(cmd, pki.Roll(f.directory(), f.kubeconfig(), s), "%s\n", next)
		},
	}
}
