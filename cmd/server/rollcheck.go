package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
)

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
		return fmt.Errorf("%w (to go on without asking, because nothing runs, give --offline)", err)
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
