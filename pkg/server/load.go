package server

import (
	"context"

	"github.com/google/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/etcdcheck"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Load fills the shard's prefix in etcd, which must be empty, with objects as they were: see storage.Client.Load. The
// shard is that of a Config with which replicas are started afterwards. Until all objects are there, a replica refuses
// to start.
func Load(ctx context.Context, cfg Config, each func(take func(storage.StoredIn) error) error) error {
	held, err := openKeys(cfg)
	if err != nil {
		return err
	}
	// The store needs no more of a server.
	s := &Server{cfg: cfg, keys: held, generic: &genericapiserver.Config{APIServerID: "regent-" + uuid.NewString()}}
	store, err := s.openInto(ctx, &store{uncached: true})
	if err != nil {
		return err
	}
	defer store.close()
	return store.Load(ctx, etcdcheck.RecordKey(cfg.EtcdPrefix), etcdcheck.LoadMark, each)
}
