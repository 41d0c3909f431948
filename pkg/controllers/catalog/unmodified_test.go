package catalog

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/controllers"
)

// unmodified is a source that holds controllers to what Informers says: do not modify the objects in them. They share
// memory with the watch cache, so that users would read what a controller has changed in one.
type unmodified struct {
	controllers.Source
	mu sync.Mutex
	// given are the objects that informers got, with what they were then.
	given map[runtime.Object]runtime.Object
}

func holdUnmodified(t *testing.T, source controllers.Source) *unmodified {
	u := &unmodified{Source: source, given: map[runtime.Object]runtime.Object{}}
	t.Cleanup(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		for now, then := range u.given {
			if !equality.Semantic.DeepEqual(now, then) {
				t.Errorf("a controller has modified an object of an informer (-then +now):\n%s", cmp.Diff(then, now))
			}
		}
		if len(u.given) == 0 {
			t.Error("the informers have read nothing")
		}
	})
	return u
}

func (u *unmodified) give(obj runtime.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.given[obj] = obj.DeepCopyObject()
}

func (u *unmodified) Objects(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return withholding{u.Source.Objects(resource), u}
}

func (u *unmodified) Metadata(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return withholding{u.Source.Metadata(resource), u}
}

func (u *unmodified) CustomObjects() cache.ListerWatcherWithContext {
	return withholding{u.Source.CustomObjects(), u}
}

type withholding struct {
	cache.ListerWatcherWithContext
	by *unmodified
}

func (h withholding) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := h.ListerWatcherWithContext.ListWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return list, meta.EachListItem(list, func(obj runtime.Object) error {
		h.by.give(obj)
		return nil
	})
}

func (h withholding) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := h.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		h.by.give(event.Object)
		return event, true
	}), nil
}
