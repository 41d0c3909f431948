package server

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"

	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/encryption"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/etcdcheck"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/storage"
)

// store is the shard's etcd: the one client of it, and the checks of both.
type store struct {
	*storage.Client
	// embedded is the etcd that this process runs, or nil.
	embedded *etcd.Server
	// keys encrypt what is stored. Nil: it is stored unencrypted.
	keys *encryption.Keys
	// etcd checks that etcd answers, space that it has some left, shard that its prefix belongs to this shard.
	etcd  *etcdcheck.Answers
	space *etcdcheck.Space
	shard *etcdcheck.Shard
}

// openStore starts the embedded etcd, if configured, and waits for it. It does not wait for an external etcd.
func (r *run) openStore() (*store, error) {
	s := &store{}
	limits := edge.NewWriteLimits(r.cfg.Limits.HistoryBytes, clock.RealClock{})
	stored := storage.Config{Transport: r.cfg.Etcd, Prefix: r.cfg.EtcdPrefix, Meter: limits}
	secrets, err := s.readKeys(r.ctx, r.cfg.EncryptionConfigFile, r.generic.APIServerID)
	if err != nil {
		return nil, err
	}
	if s.keys != nil {
		stored.Transformers = s.keys
	}
	if r.cfg.EmbeddedEtcd != nil {
		if s.embedded, err = etcd.Start(r.ctx, *r.cfg.EmbeddedEtcd); err != nil {
			s.close()
			return nil, err
		}
		stored.Transport = s.embedded.Transport()
	}
	stored.Transport.TracerProvider = r.tracing.Sampled()
	if s.Client, err = storage.NewClient(stored); err != nil {
		s.close()
		return nil, err
	}
	s.etcd = etcdcheck.NewAnswers(s.Etcd(), r.cfg.EtcdPrefix)
	s.space = etcdcheck.NewSpace(s.Etcd(), limits.Fit)
	s.shard = etcdcheck.NewShard(s.Etcd(), etcdcheck.Config{
		Shard: r.cfg.Shard, Prefix: r.cfg.EtcdPrefix, Directory: filepath.Join(r.cfg.RootDirectory, pkiDirectory), Secrets: secrets,
	}, r.keys.Bundle())
	return s, nil
}

// readKeys reads how objects are encrypted in etcd, if they are, and returns what encrypts Secrets.
func (s *store) readKeys(ctx context.Context, file, apiServerID string) (secrets value.Transformer, err error) {
	if file == "" {
		return identity.NewEncryptCheckTransformer(), nil
	}
	if s.keys, err = encryption.Load(ctx, file, apiServerID); err != nil {
		return nil, err
	}
	return s.keys.TransformerForResource(corev1.Resource("secrets")), nil
}

// watchKeys loads the encryption keys anew when their file changes, until ctx ends. The probe secret is then encrypted
// anew, too.
func (s *store) watchKeys(ctx context.Context) {
	if s.keys != nil {
		s.keys.Run(ctx, s.shard.EncryptAnew)
	}
}

// close closes the client, stops the embedded etcd and ends the connections to KMS plugins. The API server must have
// destroyed its stores before.
func (s *store) close() {
	if s.Client != nil {
		_ = s.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
	if s.keys != nil {
		s.keys.Close()
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

// describe returns the members of etcd, and which of them serve.
func (s *store) describe() (out []status.Member) {
	members := s.Members()
	for _, m := range members {
		out = append(out, status.Member{Endpoint: m.Endpoint, Serves: m.Serves && (len(members) > 1 || s.etcd.DidAnswer())})
	}
	return out
}

// aside returns what is stored in etcd and is no object.
func (s *store) aside() (out []status.Aside) {
	for _, a := range s.Aside() {
		out = append(out, status.Aside{Resource: a.Resource, Number: a.Number, ModRevision: a.Revision})
	}
	return out
}
