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

// store is where the shard's objects are kept: etcd, the one client of it, and what is known of both.
type store struct {
	*storage.Client
	// embedded is the etcd that this process runs; nil: it runs none.
	embedded *etcd.Server
	// keys are the checks of what encrypts objects.
	keys []healthz.HealthChecker
	// etcd asks etcd whether it answers, shard whether it is this shard's.
	etcd  *etcdCheck
	shard *shardCheck
}

// openStore starts the embedded etcd, if there is one. It does not wait for another.
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

// close comes after the API server has destroyed its stores.
func (s *store) close() {
	if s.Client != nil {
		_ = s.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// watchEmbedded returns the embedded etcd's fault if it stops by itself, nil when ctx ends.
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

// readEncryption reads how objects are encrypted in etcd; nil: they are not. What it starts, for keys that a KMS has, ends
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
