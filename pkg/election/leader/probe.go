package leader

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/detect"
)

// OpenProbe opens the probe that a Leader has, for an Elector that is made in another way, such as one of package
// clientgo: it is for election.Config.Detector. Of cfg count Namespace, Name, Replica, the secret and the addresses.
// Replica is required, and must be the election.Config's. It waits for the secret, and returns ctx's cause if that does
// not come. ctx also gives the logger. Close the probe when the Elector's Run has returned.
func OpenProbe(ctx context.Context, config *rest.Config, cfg Config) (*detect.Detector, error) {
	if config == nil {
		return nil, errNoConfig
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	switch {
	case cfg.secretSources() == 0:
		return nil, errors.New("leader: Config.SecretName, SecretFile or SecretBytes is required: by it replicas know each other's probes")
	case cfg.Replica == "":
		return nil, errors.New("leader: Config.Replica is required: give that of the election.Config, which package clientgo takes from the lock's Identity")
	}
	clients, err := newClients(config)
	if err != nil {
		return nil, err
	}
	defer clients.close()
	probe, err := newProbe(config, cfg, cfg.Replica) //nolint:contextcheck // looking for the own address is bounded by itself
	if err != nil {
		return nil, err
	}
	if err := open(ctx, probe, cfg, clients, func(string) {}); err != nil {
		probe.Close()
		return nil, err
	}
	return probe, nil
}

func newProbe(config *rest.Config, cfg Config, replica string) (*detect.Detector, error) {
	advertised, err := thisMachine.advertised(cfg.AdvertiseAddress, config)
	if err != nil {
		return nil, err
	}
	probe, err := detect.New(detect.Config{
		Name: cfg.Name, Replica: replica, Listen: cfg.listen(advertised, thisMachine.has), Advertise: advertised,
	})
	if err != nil {
		return nil, fmt.Errorf("leader: cannot make the probe: %w", err)
	}
	return probe, nil
}

// open opens a probe, once the secret is there.
func open(ctx context.Context, probe *detect.Detector, cfg Config, clients *clients, held func(why string)) error {
	secret, err := awaitSecret(ctx, cfg, clients.secrets.Secrets(cfg.Namespace), held)
	if err != nil {
		return err
	}
	if err := probe.Open(ctx, secret); err != nil {
		return fmt.Errorf("leader: Config.BindAddress and ProbePort: %w", err)
	}
	klog.FromContext(ctx).Info("Other replicas reach this process's probe", "lease", cfg.Namespace+"/"+cfg.Name, "address", probe.Contact().Address)
	return nil
}
