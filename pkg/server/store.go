package server

import (
	"cmp"
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	unencrypted "k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/encryption"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/etcdcheck"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/keys"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/storage"
)

// store is the shard's etcd: the one client of it, the checks of both, and the storage of all objects.
type store struct {
	*storage.Client
	// builtIn has the objects of what this server defines, and customs those of what logical clusters define.
	builtIn *apis.Storage
	customs *custom.Storage
	// embedded is the etcd that this process runs, or nil.
	embedded *etcd.Server
	// keys encrypt what is stored. Nil: it is stored unencrypted.
	keys *encryption.Keys
	// etcd checks that etcd answers, space that it has some left, shard that its prefix belongs to this shard.
	etcd  *etcdcheck.Answers
	space *etcdcheck.Space
	shard *etcdcheck.Shard
	// uncached: nobody reads from it.
	uncached bool
}

// openStore starts the embedded etcd, if configured, and waits for it. It does not wait for an external etcd.
func (s *Server) openStore(ctx context.Context) (*store, error) {
	return s.openInto(ctx, &store{})
}

func (s *Server) openInto(ctx context.Context, out *store) (*store, error) {
	if err := out.open(ctx, s); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

func (s *store) open(ctx context.Context, of *Server) (err error) {
	cfg := of.cfg
	limits := edge.NewWriteLimits(cfg.Limits.HistoryBytes, clock.RealClock{})
	stored := storage.Config{Transport: cfg.Etcd, Prefix: cfg.EtcdPrefix, Meter: limits, Uncached: s.uncached, IsOwn: identity.IsOwnContext}
	secrets, err := s.readKeys(ctx, cfg.EncryptionConfigFile, of.generic.APIServerID)
	if err != nil {
		return err
	}
	if s.keys != nil {
		stored.Transformers = s.keys
	}
	if cfg.EmbeddedEtcd != nil {
		if s.embedded, err = etcd.Start(ctx, *cfg.EmbeddedEtcd); err != nil {
			return err
		}
		stored.Transport = s.embedded.Transport()
	}
	stored.Transport.TracerProvider = of.tracing.Sampled()
	if s.Client, err = storage.NewClient(stored); err != nil {
		return err
	}
	s.etcd = etcdcheck.NewAnswers(s.Etcd(), cfg.EtcdPrefix)
	s.space = etcdcheck.NewSpace(s.Etcd(), limits.Fit)
	s.shard = etcdcheck.NewShard(s.Etcd(), etcdcheck.Config{
		Shard: cfg.Shard, Prefix: cfg.EtcdPrefix, Directory: filepath.Join(cfg.RootDirectory, pkiDirectory), Secrets: secrets,
		Formats: cmp.Or(cfg.Formats, format.Ours(build.Info().GitVersion)),
	}, of.keys.Bundle())
	if s.customs, err = custom.Open(storage.NewRESTOptionsGetter(s.Client, func(schema.GroupResource) (storage.Encoding, error) { return custom.Encoding(), nil })); err != nil {
		return err
	}
	s.builtIn, err = apis.Open(apis.NewRESTOptionsGetter(s.Client), s.customs)
	return err
}

// readKeys reads how objects are encrypted in etcd, if they are, and returns what encrypts Secrets.
func (s *store) readKeys(ctx context.Context, file, apiServerID string) (secrets value.Transformer, err error) {
	if file == "" {
		return unencrypted.NewEncryptCheckTransformer(), nil
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

// followKeys uses what is in pki/, or in the membership, when it changes, until ctx ends.
func (s *Server) followKeys(ctx context.Context, store *store, caches *caches) {
	cfg := keys.FollowConfig{Agree: store.shard.Follow, Membership: s.cfg.Membership, File: s.cfg.MembershipFile}
	if caches.others != nil {
		cfg.FindRoot = caches.others.FindRoot
	}
	s.keys.Follow(ctx, cfg)
}

// close closes the storage and the client, stops the embedded etcd and ends the connections to KMS plugins.
func (s *store) close() {
	if s.builtIn != nil {
		s.builtIn.Close()
	}
	if s.customs != nil {
		s.customs.Close()
	}
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
