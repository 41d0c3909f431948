package storage

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// stamp writes an object's logical cluster, taken from its key, into the annotation kcp.io/cluster. It does so right
// above etcd, inside each attempt of an update, so that values from users or controllers never last. The watch cache
// above relies on the annotation to derive keys from objects.
type stamp struct {
	storage.Interface
	prefix string
}

func (s *stamp) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.mark(key, obj); err != nil {
		return err
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s *stamp) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	marked := func(current runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		updated, ttl, err := tryUpdate(current, res)
		if err != nil {
			return nil, nil, err
		}
		if err := s.mark(key, updated); err != nil {
			return nil, nil, err
		}
		return updated, ttl, nil
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, marked, cached)
}

// IsWatchListSemanticsUnSupported keeps the watch cache's reflector from streaming lists. client-go collects a streamed
// list in a store keyed by namespace and name. There, objects with equal names in two clusters silently replace each
// other.
func (s *stamp) IsWatchListSemanticsUnSupported() bool { return true }

func (s *stamp) mark(key string, obj runtime.Object) error {
	cluster, _, err := clusters.ParseStorageKey(s.prefix, key)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("object at %q has no metadata: %w", key, err)
	}
	annotations := accessor.GetAnnotations()
	if annotations[logicalcluster.AnnotationKey] == cluster.String() {
		return nil
	}
	// The map may be shared with an object of the caller.
	own := make(map[string]string, len(annotations)+1)
	for k, v := range annotations {
		own[k] = v
	}
	own[logicalcluster.AnnotationKey] = cluster.String()
	accessor.SetAnnotations(own)
	return nil
}
