package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/pkg/server/pki"
)

func newPKICertify(f *pkiFlags) *cobra.Command {
	return &cobra.Command{
		Use: "certify <membership>...", Short: "Bring memberships to the step of a roll that pki/ has reached",
		Long: `Bring memberships, files of regent shard add and regent front add, to the step of a roll that pki/ has reached: whom a member trusts, and who has signed
its certificate. The files are replaced. Give each member its file then, under the name by which it was started: it is used within seconds, without a
restart. The member's key stays, so that nobody takes it for another one. Files that are at that step already stay as they are.`,
		Example: `  regent pki certify eu1.yaml us1.yaml f1.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("give the files of memberships, as regent shard add and regent front add have printed them")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			bundle, err := pki.Read(f.directory())
			if err != nil {
				return err
			}
			for _, name := range args {
				member, err := bundle.CertifyFile(name)
				if err := told(cmd, err, "%s: give it to %s\n", name, member); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
