package custom

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
)

// cachePause is the pause between two looks whether the watch cache is ready.
const cachePause = 10 * time.Millisecond

// Metadata is for an informer of *clusters.CustomObject: the metadata of all custom objects of the shard. They share
// all but their outermost struct with the watch cache.
func (s *Storage) Metadata() cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc:  s.listMetadata,
		WatchFuncWithContext: s.watchMetadata,
	}
}

func (s *Storage) listMetadata(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	look := time.NewTicker(cachePause)
	defer look.Stop()
	for s.Ready() != nil { // until then lists are read from etcd, and nothing of them would be shared
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
		}
	}
	found := &objectList{}
	if err := s.store.GetList(clusters.With(ctx, clusters.Wildcard), Prefix, everything(opts), found); err != nil {
		return nil, err
	}
	out := &internalversion.List{ListMeta: found.ListMeta, Items: make([]runtime.Object, len(found.Items))}
	for i := range found.Items {
		out.Items[i] = metadataOf(&found.Items[i])
	}
	return out, nil
}

func (s *Storage) watchMetadata(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	events, err := s.store.Watch(clusters.With(ctx, clusters.Wildcard), Prefix, everything(opts))
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		obj := event.Object
		if shared, ok := obj.(runtime.CacheableObject); ok {
			obj = shared.GetObject()
		}
		if o, ok := obj.(*object); ok {
			event.Object = metadataOf(o)
		}
		return event, true
	}), nil
}

func everything(opts metav1.ListOptions) storage.ListOptions {
	return storage.ListOptions{
		ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes,
			Limit: opts.Limit, Continue: opts.Continue, AllowWatchBookmarks: opts.AllowWatchBookmarks,
		},
		SendInitialEvents: opts.SendInitialEvents,
	}
}

func metadataOf(o *object) *clusters.CustomObject {
	return &clusters.CustomObject{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
}
