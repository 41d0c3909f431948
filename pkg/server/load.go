package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/etcdcheck"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Load fills the shard's prefix in etcd, which must be empty, with objects as they were: see storage.Client.Load. The
// LogicalClusters get later epochs, since revisions begin anew. The shard is that of a Config with which replicas are
// started afterwards. Until all objects are there, a replica refuses to start.
func Load(ctx context.Context, cfg Config, each func(take func(storage.StoredIn) error) error) error {
	return withStore(ctx, cfg, func(store *store) error { return load(ctx, store, cfg.EtcdPrefix, each) })
}

// withStore calls do with the store of a Config, which nobody serves.
func withStore(ctx context.Context, cfg Config, do func(*store) error) error {
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
	return do(store)
}

func load(ctx context.Context, store *store, prefix string, each func(take func(storage.StoredIn) error) error) error {
	now := time.Now()
	return store.Load(ctx, etcdcheck.RecordKey(prefix), etcdcheck.LoadMark, func(take func(storage.StoredIn) error) error {
		return each(func(in storage.StoredIn) (err error) {
			if in.Key == bundle.LogicalClusterKey && !clusters.IsSystem(in.Cluster) {
				if in.JSON, err = inLaterEpoch(in.JSON, now); err != nil {
					return fmt.Errorf("the LogicalCluster of %s: %w", in.Cluster, err)
				}
			}
			return take(in)
		})
	})
}

// inLaterEpoch returns a LogicalCluster as it is in an etcd whose revisions begin anew: versions of its objects are
// later than before all the same.
func inLaterEpoch(lc []byte, now time.Time) ([]byte, error) {
	all := &unstructured.Unstructured{}
	if err := all.UnmarshalJSON(lc); err != nil {
		return nil, err
	}
	annotations := map[string]string{clusters.EpochAnnotation: strconv.FormatInt(clusters.NextEpoch(all, now), 10)}
	for key, value := range all.GetAnnotations() {
		switch _, rootCA, ok := strings.Cut(value, "."); {
		case key == clusters.BuiltInAnnotation && ok: // it begins with a revision
			annotations[key] = "1." + rootCA
		case key != clusters.EpochAnnotation:
			annotations[key] = value
		}
	}
	all.SetAnnotations(annotations)
	return all.MarshalJSON()
}
