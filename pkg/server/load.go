package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	now := time.Now()
	return store.Load(ctx, etcdcheck.RecordKey(cfg.EtcdPrefix), etcdcheck.LoadMark, func(take func(storage.StoredIn) error) error {
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
	is := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: all.GetAnnotations()}}
	metav1.SetMetaDataAnnotation(&is.ObjectMeta, clusters.EpochAnnotation, strconv.FormatInt(clusters.NextEpoch(is, now), 10))
	// it begins with a revision
	if _, rootCA, ok := strings.Cut(is.Annotations[clusters.BuiltInAnnotation], "."); ok {
		is.Annotations[clusters.BuiltInAnnotation] = "1." + rootCA
	}
	all.SetAnnotations(is.Annotations)
	return all.MarshalJSON()
}
