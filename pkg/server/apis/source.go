package apis

import (
	"context"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

// cachePause is the pause between two looks whether a watch cache is ready.
const cachePause = 10 * time.Millisecond

// readable is the storage of a resource.
type readable interface {
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.StorageWithReadiness
}

// stored is the storage of a resource as a source of informers.
type stored struct {
	readable
	uncached bool
}

// Objects implements controllers.Source: an informer reads all objects of a resource from storage, in this process. The
// objects share everything but their outermost struct with the watch cache, which would otherwise hold it a second
// time: whoever modifies one modifies what users read.
func (r *Reader) Objects(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return r.source(resource, func(obj runtime.Object) (runtime.Object, error) { return obj, nil })
}

// Metadata implements controllers.Source.
func (r *Reader) Metadata(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return r.source(resource, metadataOf)
}

// CustomObjects implements controllers.Source.
func (r *Reader) CustomObjects() cache.ListerWatcherWithContext { return r.custom.Metadata() }

func (r *Reader) source(resource schema.GroupVersionResource, as func(runtime.Object) (runtime.Object, error)) cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			s, err := r.storage(resource)
			if err != nil {
				return nil, err
			}
			return s.list(ctx, opts, as)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			s, err := r.storage(resource)
			if err != nil {
				return nil, err
			}
			return s.watch(ctx, opts, as)
		},
	}
}

func (s stored) list(ctx context.Context, opts metav1.ListOptions, as func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	options, err := internal(opts)
	if err != nil {
		return nil, err
	}
	if err := s.awaitCache(ctx); err != nil {
		return nil, err
	}
	list, err := s.List(storage.StoredOnly(clusters.With(ctx, clusters.Wildcard)), options)
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("a list of %T: %w", list, err)
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount(),
	}}
	return out, meta.EachListItemWithAlloc(list, func(obj runtime.Object) error {
		item, err := as(obj)
		out.Items = append(out.Items, item)
		return err
	})
}

// awaitCache waits until the watch cache, if there is one, has read all objects. Until then lists are read from etcd:
// what a replica starts with would be decoded twice, and nothing of it shared.
func (s stored) awaitCache(ctx context.Context) error {
	look := time.NewTicker(cachePause)
	defer look.Stop()
	for s.ReadinessCheck() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// watch ignores the timeout that the reflector asks for: a connection may die without a sign, a channel does not.
func (s stored) watch(ctx context.Context, opts metav1.ListOptions, as func(runtime.Object) (runtime.Object, error)) (watch.Interface, error) {
	options, err := internal(opts)
	if err != nil {
		return nil, err
	}
	events, err := s.Watch(storage.StoredOnly(clusters.With(ctx, clusters.Wildcard)), options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Error {
			return event, true
		}
		obj, err := as(s.shared(ctx, event))
		if err != nil {
			return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}, true
		}
		return watch.Event{Type: event.Type, Object: obj}, true
	}), nil
}

// shared returns the object of an event. The watch cache's events have copies of what the cache holds: a get from the
// cache shares it. If the object has changed since, the event's copy is used until the next event.
func (s stored) shared(ctx context.Context, event watch.Event) runtime.Object {
	if !s.uncached && (event.Type == watch.Added || event.Type == watch.Modified) {
		if of, err := meta.Accessor(event.Object); err == nil {
			at := request.WithNamespace(clusters.With(storage.StoredOnly(ctx), logicalcluster.From(of)), of.GetNamespace())
			obj, err := s.Get(at, of.GetName(), &metav1.GetOptions{ResourceVersion: "0"})
			if err == nil && sameVersion(obj, of) {
				return obj
			}
		}
	}
	if cached, ok := event.Object.(runtime.CacheableObject); ok {
		return cached.GetObject()
	}
	return event.Object
}

func sameVersion(obj runtime.Object, as metav1.Object) bool {
	of, err := meta.Accessor(obj)
	return err == nil && of.GetResourceVersion() == as.GetResourceVersion() && of.GetUID() == as.GetUID()
}

func internal(opts metav1.ListOptions) (*internalversion.ListOptions, error) {
	out := &internalversion.ListOptions{}
	if err := internalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&opts, out, nil); err != nil {
		return nil, fmt.Errorf("options of a list: %w", err)
	}
	return out, nil
}

func metadataOf(obj runtime.Object) (runtime.Object, error) {
	of, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, fmt.Errorf("a %T has no metadata", obj)
	}
	return clusters.Metadata(of), nil
}
