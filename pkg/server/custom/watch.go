package custom

import (
	"context"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// eventsAhead is how many events a watch has ready: upstream sends those together that are there.
const eventsAhead = 10

// Watch implements storage.Interface. What the watch shows is made for the watchers of the view together, where the
// watch cache lets them share.
func (v *view) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	predicate, failed := v.predicate(ctx, opts.Predicate)
	opts.Predicate = predicate
	from, err := v.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &shownWatch{view: v, from: from, failed: failed, events: make(chan watch.Event, eventsAhead), cancel: cancel, ended: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

// shownWatch is a watch of stored objects, as a view shows them.
type shownWatch struct {
	view   *view
	from   watch.Interface
	failed *failure
	events chan watch.Event

	cancel context.CancelFunc
	ended  chan struct{}
}

// ResultChan implements watch.Interface.
func (w *shownWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns when nothing of the watch runs any more.
func (w *shownWatch) Stop() {
	w.cancel()
	<-w.ended
}

// run shows events until the watch ends. An error ends it: a watch that went on without an object that cannot be shown
// would tell something else than what there is.
func (w *shownWatch) run(ctx context.Context) {
	defer close(w.ended)
	defer close(w.events)
	defer w.from.Stop()
	defer w.cancel()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return
		case <-w.failed.is:
			event = failed(w.failed.err)
		case stored, ok := <-w.from.ResultChan():
			if !ok {
				return
			}
			var leftOut bool
			if event, leftOut = w.view.event(ctx, stored); leftOut {
				continue
			}
		}
		select {
		case w.events <- event:
		case <-ctx.Done():
			return
		}
		if event.Type == watch.Error {
			return
		}
	}
}

// event shows an event, or an error in place of it. It is left out if it is about an object that another definition has
// left behind.
func (v *view) event(ctx context.Context, e watch.Event) (_ watch.Event, leftOut bool) {
	stored, shared := e.Object, runtime.CacheableObject(nil)
	if c, ok := stored.(runtime.CacheableObject); ok {
		stored, shared = c.GetObject(), c // which copies it
	}
	o, ok := stored.(*object)
	switch {
	case !ok:
		return e, false // a status
	case e.Type == watch.Bookmark:
		e.Object = v.bookmark(o)
		return e, false
	case v.isLeftover(ctx, o):
		return e, true
	case shared != nil && !v.converts(o):
		e.Object = &sharedEvent{object: o, cache: shared, view: v}
		return e, false
	}
	content, err := v.share(ctx, o)
	if err != nil {
		return failed(err), false
	}
	e.Object = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	return e, false
}

func failed(err error) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: 500,
		Message: "a custom object cannot be shown: " + err.Error(),
	}}
}

// bookmark has no more than the version up to which a watch has seen everything, and the annotation that ends the first
// objects.
func (v *view) bookmark(o *object) runtime.Object {
	out, ok := v.empty().(*unstructured.Unstructured)
	if !ok {
		return o
	}
	out.SetResourceVersion(o.ResourceVersion)
	if len(o.Annotations) > 0 {
		out.SetAnnotations(o.Annotations)
	}
	return out
}

// sharedEvent is an object that the watch cache sends to several watchers. It is shown, and encoded, once for all of
// them that use one view. No webhook converts it: that would have to end with one of them, and the others would get its
// error.
type sharedEvent struct {
	*object
	cache runtime.CacheableObject
	view  *view
}

// CacheEncode implements runtime.CacheableObject.
func (e *sharedEvent) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return e.cache.CacheEncode(e.view.identifier+id, func(stored runtime.Object, w io.Writer) error {
		u, err := e.view.show(context.Background(), stored.(*object))
		if err != nil {
			return err
		}
		return encode(u, w)
	}, w)
}

// GetObject implements runtime.CacheableObject.
func (e *sharedEvent) GetObject() runtime.Object {
	u, err := e.view.show(context.Background(), e.object)
	if err != nil {
		return e.object
	}
	return u
}

// DeepCopyObject implements runtime.Object.
func (e *sharedEvent) DeepCopyObject() runtime.Object { return e.GetObject() }

var _ runtime.CacheableObject = (*sharedEvent)(nil)
