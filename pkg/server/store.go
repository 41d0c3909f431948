package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"

	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/storage"
)

// store is the shard's etcd: the one client of it, and the checks of both.
type store struct {
	*storage.Client
	// embedded is the etcd that this process runs, or nil.
	embedded *etcd.Server
	// keys are the health checks of the encryption providers.
	keys []healthz.HealthChecker
	// etcd checks that etcd answers, shard that its prefix belongs to this shard.
	etcd  *etcdCheck
	shard *shardCheck
}

// openStore starts the embedded etcd, if configured, and waits for it. It does not wait for an external etcd.
func (r *run) openStore() (*store, error) {
	encryption, err := readEncryption(r.process.ctx, r.cfg.EncryptionConfigFile, r.generic.APIServerID)
	if err != nil {
		return nil, err
	}
	s := &store{}
	stored := storage.Config{Transport: r.cfg.Etcd, Prefix: r.cfg.EtcdPrefix}
	if r.cfg.EmbeddedEtcd != nil {
		if s.embedded, err = etcd.Start(r.ctx, *r.cfg.EmbeddedEtcd); err != nil {
			return nil, err
		}
		stored.Transport = s.embedded.Transport()
	}
	transformers := encryptionconfig.StaticTransformers{}
	if encryption != nil {
		transformers, s.keys = encryption.Transformers, encryption.HealthChecks
		stored.Transformers = transformers
	}
	if s.Client, err = storage.NewClient(stored); err != nil {
		s.close()
		return nil, err
	}
	s.etcd = newEtcdCheck(s.Etcd(), r.cfg.EtcdPrefix)
	s.shard = newShardCheck(s.Etcd(), r.cfg, r.bundle, transformers.TransformerForResource(corev1.Resource("secrets")))
	return s, nil
}

// close closes the client and stops the embedded etcd. The API server must have destroyed its stores before.
func (s *store) close() {
	if s.Client != nil {
		_ = s.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// watchEmbedded returns an error if the embedded etcd stops by itself, and nil when ctx ends.
func (s *store) watchEmbedded(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.embedded.Failed():
		return err
	}
}

// readEncryption reads how objects are encrypted in etcd. It returns nil if they are not. What it starts for keys in a KMS ends
// with ctx.
func readEncryption(ctx context.Context, file, apiServerID string) (*encryptionconfig.EncryptionConfiguration, error) {
	if file == "" {
		return nil, nil
	}
	encryption, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, apiServerID)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: cannot use %s: %w", file, err)
	}
	return encryption, nil
}
