package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
)

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
		Use: "roll", Short: "Replace the certificate authority of a shard or an installation while clients stay connected", Args: noCommand,
		Long: `Replace the certificate authority of a shard, or of an installation, step by step, while clients stay connected. After
each step copy pki/ to the other replicas, and give the members of an installation new memberships: regent pki certify.

  begin    makes a new authority. Both are trusted, and the old one signs. Give clients the new pki/ca.crt, which has both.
  switch   has the new authority sign. Both are trusted. Give clients new certificates.
  finish   drops the old authority: nobody trusts what it has signed.
  abort    drops the new authority instead, before it signs.

A step first asks all replicas, and all fronts that --front names, whether the previous step has reached them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.addTo(cmd.PersistentFlags())
	cmd.AddCommand(
		f.step(pki.Begin, "Make a new authority, and trust both", "both authorities are trusted, and the old one signs: copy pki/ to the other replicas, give members their memberships (regent pki certify) and clients pki/ca.crt, then run regent pki roll switch"),
		f.step(pki.Switch, "Have the new authority sign", "the new authority signs, and both are trusted: copy pki/ to the other replicas, give members their memberships (regent pki certify) and clients new certificates, then run regent pki roll finish"),
		f.step(pki.Finish, "Drop the old authority", "the old authority is trusted no more: copy pki/ to the other replicas, and give members their memberships (regent pki certify)"),
		f.step(pki.Abort, "Drop the new authority, before it signs", "the roll is undone: copy pki/ to the other replicas, remove roll.json there, and give members their memberships (regent pki certify)"),
	)
	return cmd
}

func (f *rollFlags) addTo(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.servers, "server", nil, "URL of a replica to ask, such as https://10.0.0.1:6443. May be given several times. Default: the server that admin.kubeconfig names.")
	flags.StringArrayVar(&f.fronts, "front", nil, "URL of a front to ask, such as https://10.0.0.1:6443. May be given several times. An installation's steps are refused until all fronts were asked.")
	flags.BoolVar(&f.offline, "offline", false, "Ask no server. Use it only if no replica and no front is running.")
}

func (f *rollFlags) step(s pki.Step, short, next string) *cobra.Command {
	return &cobra.Command{
		Use: s.Does, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.offline {
				ctx, cancel := context.WithTimeout(cmd.Context(), shardTimeout)
				defer cancel()
				if err := view.While(ctx, cmd.ErrOrStderr(), "Waiting for all replicas and fronts to say that the previous step has reached them", func(ctx context.Context) error {
					return f.ask(ctx, s)
				}); err != nil {
					return err
				}
			}
			return confirm(cmd, pki.Roll(f.directory(), f.kubeconfig(), s), "%s\n", next)
		},
	}
}

// ask returns an error if the shard is not ready for a step.
func (f *rollFlags) ask(ctx context.Context, s pki.Step) error {
	bundle, err := pki.Read(f.directory())
	if err != nil {
		return err
	}
	if err := s.Allowed(bundle); err != nil {
		return err
	}
	configs, err := f.configs()
	if err != nil {
		return err
	}
	var faults []error
	for _, config := range configs {
		faults = append(faults, ready(ctx, s, bundle, config))
	}
	faults = append(faults, f.askMembers(ctx, s, bundle, configs[0]))
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w (if no replica and no front is running, continue without asking: --offline)", err)
	}
	return nil
}

// askMembers returns an error if any process of an installation is not ready for a step.
func (f *rollFlags) askMembers(ctx context.Context, s pki.Step, bundle *pki.Bundle, config *rest.Config) error {
	if s.Does == pki.Abort.Does {
		return nil // nobody shows anything of the new authority
	}
	admin, err := installation.New(config)
	if err != nil {
		return err
	}
	others, err := admin.Others(ctx)
	if err != nil {
		return fmt.Errorf("cannot find out whether this shard is alone: %w", err)
	}
	if len(others) == 0 {
		return nil
	}
	q, err := question(s, bundle)
	if err != nil {
		return err
	}
	return admin.Ask(ctx, q, f.fronts)
}

// question returns what everybody must answer before a step.
func question(s pki.Step, bundle *pki.Bundle) (q installation.Question, err error) {
	q = installation.Question{CA: bundle.CAPEM, Cert: bundle.AdminCertPEM, Key: bundle.AdminKeyPEM, Lacks: "has not the authority that is in pki/"}
	switch s.Does {
	case pki.Switch.Does:
		q.Lacks = "does not trust the new authority yet"
		q.Cert, q.Key, err = bundle.Successor()
	case pki.Finish.Does:
		q.Lacks = "does not show what the new authority has signed yet"
		q.Signs = bundle.CA()
	}
	return q, err
}

// configs return how the replicas are reached that are to be asked.
func (f *rollFlags) configs() ([]*rest.Config, error) {
	servers := f.servers
	if len(servers) == 0 {
		servers = []string{""}
	}
	var all []*rest.Config
	for _, server := range servers {
		config, err := (&adminFlags{kubeconfig: f.kubeconfig(), context: "root", server: server}).config()
		if err != nil {
			return nil, err
		}
		all = append(all, config)
	}
	return all, nil
}

// ready returns an error if one replica is not ready for a step.
func ready(ctx context.Context, s pki.Step, bundle *pki.Bundle, config *rest.Config) error {
	config = rest.CopyConfig(config)
	var err error
	switch s.Does {
	case pki.Switch.Does: // a client that the new authority has certified is accepted
		if config.CertData, config.KeyData, err = bundle.Successor(); err != nil {
			return err
		}
		if err = installation.Accepts(ctx, config); errors.Is(err, installation.ErrRefused) {
			return fmt.Errorf("the new authority is not trusted there yet: copy pki/ to that replica, and wait some seconds: %w", err)
		}
		return err
	case pki.Finish.Does: // a client that trusts only the new authority trusts the server
		if config.CAData, err = bundle.SignerPEM(); err != nil {
			return err
		}
		if err = installation.Accepts(ctx, config); err != nil {
			return fmt.Errorf("a replica does not show a certificate of the new authority, or cannot be asked: copy pki/ to that replica, and wait some seconds: %w", err)
		}
	}
	return nil
}
