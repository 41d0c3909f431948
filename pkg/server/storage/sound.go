package storage

import (
	"context"
	"reflect"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"
)

// sound keeps from lists and watches what is stored and can be no object of the resource: bytes that nothing can be
// decoded from, and objects whose place cannot be told. Upstream's store fails the whole list for one of them. Then no
// replica's cache fills any more, for all clusters (I18). A read of such an object alone still fails, and says why.
type sound struct {
	storage.Interface
	resource schema.GroupResource
	prefix   string // of its keys
	keys     func(runtime.Object) (string, error)
	aside    *aside
}

// whySetAside is the annotation of what stands for bytes that are set aside. It never leaves this layer.
const whySetAside = "regent.dev/set-aside"

// GetList implements storage.Interface.
func (s *sound) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(pointer)
	if err != nil {
		return err
	}
	if s.isOfAll(key, opts.Predicate) {
		s.aside.anew(s.resource)
	}
	n := 0
	for i := range items.Len() {
		if obj, ok := objectAt(items, i); ok && !s.keeps(ctx, obj) {
			continue
		}
		if n < i {
			items.Index(n).Set(items.Index(i))
		}
		n++
	}
	if n < items.Len() {
		clear := reflect.Zero(items.Type().Elem())
		for i := n; i < items.Len(); i++ {
			items.Index(i).Set(clear)
		}
		items.SetLen(n)
	}
	return nil
}

// isOfAll reports whether a list is what a watch cache begins with: of everything.
func (s *sound) isOfAll(key string, p storage.SelectionPredicate) bool {
	return p.Empty() && p.Continue == "" && p.Limit == 0 && strings.TrimSuffix(key, "/") == s.prefix
}

func objectAt(items reflect.Value, i int) (runtime.Object, bool) {
	item := items.Index(i)
	if item.Kind() != reflect.Pointer && item.Kind() != reflect.Interface {
		item = item.Addr()
	}
	obj, ok := item.Interface().(runtime.Object)
	return obj, ok
}

// keeps reports whether an object is one, and tells of one that is not.
func (s *sound) keeps(ctx context.Context, obj runtime.Object) bool {
	if timed, ok := obj.(storage.WatchEventWithRecordTime); ok {
		obj = timed.Unwrap()
	}
	_, err := s.keys(obj)
	if err == nil {
		return true
	}
	var revision, why string
	if of, err := meta.Accessor(obj); err == nil {
		revision, why = of.GetResourceVersion(), of.GetAnnotations()[whySetAside]
	}
	setAside.WithLabelValues(s.resource.String()).Inc()
	s.aside.add(s.resource, revision)
	klog.FromContext(ctx).Error(err, "What is stored is no object, and is shown to nobody: find it in etcd by its mod revision, and delete or mend it (docs/OPERATIONS.md)",
		"resource", s.resource, "modRevision", revision, "decoding", why)
	return false
}

// Watch implements storage.Interface.
func (s *sound) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	w := &soundWatch{Interface: inner, events: make(chan watch.Event, eventsAhead), stopped: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		defer close(w.events)
		w.pass(ctx, s)
	}()
	return w, nil
}

// soundWatch is a watch without what is no object. Its goroutine ends with the watch below: when Stop returns, or its
// context has ended.
type soundWatch struct {
	watch.Interface
	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
	ended   chan struct{}
}

// Stop implements watch.Interface.
func (w *soundWatch) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.Interface.Stop()
	<-w.ended
}

// ResultChan implements watch.Interface.
func (w *soundWatch) ResultChan() <-chan watch.Event { return w.events }

// pass leaves out what was created and is no object. Where an object was changed into something else, or that was
// deleted, nobody can say which object it was: the watch ends, and whoever watches lists again.
func (w *soundWatch) pass(ctx context.Context, s *sound) {
	for event := range w.Interface.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			if s.keeps(ctx, event.Object) {
				break
			}
			if event.Type == watch.Added {
				continue
			}
			expired := apierrors.NewResourceExpired("what was stored of an object of this resource is none: list again")
			event = watch.Event{Type: watch.Error, Object: &expired.ErrStatus}
		}
		select {
		case w.events <- event:
		case <-w.stopped:
		case <-ctx.Done():
		}
		if event.Type == watch.Error {
			w.Interface.Stop()
		}
	}
}

// lenient is a codec that makes a stand-in of bytes that it cannot decode, for sound to take away.
type lenient struct {
	runtime.Codec
	newObject func() runtime.Object
}

// Decode implements runtime.Decoder.
func (l lenient) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := l.Codec.Decode(data, defaults, into)
	if err == nil {
		return obj, kind, nil
	}
	return standIn(l.newObject(), err), &schema.GroupVersionKind{}, nil
}

// lenientDecoder is an etcd3.Decoder that makes a stand-in of an item that it cannot decode.
type lenientDecoder struct {
	etcd3.Decoder
	versioner storage.Versioner
}

// DecodeListItem implements etcd3.Decoder.
func (l lenientDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	obj, err := l.Decoder.DecodeListItem(ctx, data, revision, newItem)
	if err == nil {
		return obj, nil
	}
	obj = standIn(newItem(), err)
	return obj, l.versioner.UpdateObject(obj, revision)
}

// standIn marks an empty object: without a logical cluster it has no key.
func standIn(obj runtime.Object, why error) runtime.Object {
	if of, err := meta.Accessor(obj); err == nil {
		of.SetAnnotations(map[string]string{whySetAside: why.Error()})
	}
	return obj
}
