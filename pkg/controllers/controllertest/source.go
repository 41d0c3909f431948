package controllertest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
)

// Source is the server's side of an informer: a list of one resource's objects over all clusters, and watches. It
// validates nothing: it is for controllers that read, not for their writes.
type Source[T clusters.Object] struct {
	mu       sync.Mutex
	revision int64
	objects  map[clusters.Key]T
	// history has the events since the compacted revision.
	history   []watch.Event
	compacted int64
	failure   error
	// changed is closed and replaced at every change of the fields above.
	changed chan struct{}
	// watched is closed when the first watch begins.
	watched   chan struct{}
	watchOnce sync.Once
}

// NewSource returns a source with these objects.
func NewSource[T clusters.Object](objs ...T) *Source[T] {
	s := &Source[T]{objects: map[clusters.Key]T{}, changed: make(chan struct{}), watched: make(chan struct{})}
	for _, obj := range objs {
		s.Set(obj)
	}
	return s
}

// Informer returns a synced informer that reads from source and runs until the test ends. All its goroutines run when
// Informer returns, so that Check does not take them for the controller's.
func Informer[T clusters.Object](t testing.TB, source *Source[T], indexers map[string]func(T) []string) *clusters.Informer[T] {
	t.Helper()
	inf := clusters.NewInformer[T](source, indexers)
	Run(t, inf)
	<-source.watched
	return inf
}

// Run runs informers until the test ends. They are synced when it returns.
func Run(t testing.TB, informers ...interface {
	Run(ctx context.Context) error
	Synced() <-chan struct{}
}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, inf := range informers {
		running.Go(func() { _ = inf.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, inf := range informers {
		<-inf.Synced()
	}
}

// Set creates or replaces an object. The object gets the next resource version. A new object without a uid gets one.
func (s *Source[T]) Set(obj T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	obj = obj.DeepCopyObject().(T)
	obj.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	k, event := clusters.KeyOf(obj), watch.Added
	if old, ok := s.objects[k]; ok {
		event = watch.Modified
		if obj.GetUID() == "" {
			obj.SetUID(old.GetUID())
		}
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.revision)))
	}
	s.objects[k] = obj
	s.record(watch.Event{Type: event, Object: obj})
	return obj
}

// Delete removes an object, if it exists.
func (s *Source[T]) Delete(k clusters.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[k]
	if !ok {
		return
	}
	s.revision++
	last := old.DeepCopyObject().(T)
	last.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	delete(s.objects, k)
	s.record(watch.Event{Type: watch.Deleted, Object: last})
}

// Fail ends all watches, and makes lists and watches fail until Fail(nil). No watch reports the changes in between:
// informers have to list again.
func (s *Source[T]) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	s.history, s.compacted = nil, s.revision
	s.wake()
}

// ListWithContext lists the objects of all clusters.
func (s *Source[T]) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.revision, 10)}}
	for _, obj := range s.objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
	}
	return list, nil
}

// WatchWithContext watches the objects of all clusters from a resource version of a list.
func (s *Source[T]) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	from, err := strconv.ParseInt(opts.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if from < s.compacted {
		return nil, apierrors.NewResourceExpired("compacted")
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go s.stream(ctx, from, events, w.StopChan())
	s.watchOnce.Do(func() { close(s.watched) })
	return w, nil
}

// stream sends the events after revision from, until it is stopped or the source fails.
func (s *Source[T]) stream(ctx context.Context, from int64, events chan<- watch.Event, stop <-chan struct{}) {
	defer close(events)
	for {
		s.mu.Lock()
		if s.failure != nil || from < s.compacted {
			s.mu.Unlock()
			return
		}
		news, changed := s.history[from-s.compacted:], s.changed
		s.mu.Unlock()
		for _, event := range news {
			select {
			case events <- event:
				from++
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// record adds the event of a new revision. The caller holds mu.
func (s *Source[T]) record(event watch.Event) {
	s.history = append(s.history, event)
	s.wake()
}

func (s *Source[T]) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

var _ cache.ListerWatcherWithContext = (*Source[*metav1.PartialObjectMetadata])(nil)
