package clusters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// reflectorBackoff is short because an informer reads from its own process: there is no thundering herd, and a stale
// cache would make a slow leader.
var reflectorBackoff = wait.Backoff{
	Duration: 200 * time.Millisecond,
	Factor:   2,
	Jitter:   0.5,
	Cap:      5 * time.Second,
	Steps:    math.MaxInt32,
}

// foreignBackoff is for informers of other shards, which may be away for long. They must be back within a second of
// those.
var foreignBackoff = wait.Backoff{
	Duration: 100 * time.Millisecond,
	Factor:   2,
	Jitter:   0.1,
	Cap:      800 * time.Millisecond,
	Steps:    math.MaxInt32,
}

// Informer is a cache of one resource over all logical clusters of the shard. It lives as long as the process, on
// leaders and standbys, so that a new term starts with warm caches. Handlers live as long as a term.
//
// client-go's shared informers cannot be used: their keys have no cluster, and their handlers cannot be removed and
// joined.
//
// All methods may be called at any time on any goroutine.
type Informer[T Object] struct {
	source  *source
	backoff *wait.Backoff
	quiet   bool // whoever runs the informer tells what goes wrong
	ran     atomic.Bool
	synced  chan struct{}

	mu            sync.RWMutex
	objects       *objects[T]
	recent        recent[T]
	subscriptions map[*subscription[T]]struct{}
}

// NewInformer returns an informer that Run fills from lw, which must list and watch all clusters (see ListWatch). An
// indexer returns the values by which ByIndex finds an object. An index spans all clusters. If it must not, its values
// must contain the cluster, as Key.String does.
func NewInformer[T Object](lw cache.ListerWatcherWithContext, indexers map[string]func(T) []string) *Informer[T] {
	return &Informer[T]{
		source:        &source{ListerWatcherWithContext: lw},
		backoff:       &reflectorBackoff,
		synced:        make(chan struct{}),
		objects:       newObjects(indexers),
		subscriptions: map[*subscription[T]]struct{}{},
	}
}

// NewForeignInformer returns an informer of another shard, without indexes. It logs no failures: the other shard may be
// away for long, and its transport knows.
func NewForeignInformer[T Object](lw cache.ListerWatcherWithContext) *Informer[T] {
	i := NewInformer[T](lw, nil)
	i.backoff, i.quiet = &foreignBackoff, true
	return i
}

// Run keeps the cache up to date until ctx ends, and then returns nil. It survives any number of API errors. It may be
// called once. It does not end the handlers: whoever added them must remove them.
func (i *Informer[T]) Run(ctx context.Context) error {
	if i.ran.Swap(true) {
		return errors.New("informer has run already: construct a new one")
	}
	logger := klog.FromContext(ctx)
	if i.quiet {
		logger = logr.Discard()
		ctx = klog.NewContext(ctx, logger)
	}
	run[T](ctx, i.source, &intake[T]{i, logger}, i.backoff)
	return nil
}

// run fills a store from a source until ctx ends.
func run[T Object](ctx context.Context, from *source, to cache.ReflectorStore, backoff *wait.Backoff) {
	typ, logger := reflect.TypeFor[T](), klog.FromContext(ctx)
	cache.NewReflectorWithOptions(from, reflect.New(typ.Elem()).Interface(), to, cache.ReflectorOptions{
		Logger:  &logger,
		Name:    "clusters.Informer[" + typ.String() + "]",
		Backoff: backoff,
	}).RunWithContext(ctx)
	from.close()
}

// Synced returns a channel that is closed when the cache holds a first complete list. It stays closed.
func (i *Informer[T]) Synced() <-chan struct{} { return i.synced }

// AddHandler calls h with each change, beginning with the objects that exist now, until remove is called. remove waits
// until h is not running; h is not called again, and changes that it has not been called with are lost to it. remove
// may be called more than once, but not by h.
func (i *Informer[T]) AddHandler(h Handler[T]) (remove func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	there := i.objects.list(Wildcard)
	changes := make([]change[T], len(there))
	for n, obj := range there {
		changes[n].new = obj
	}
	return i.subscribe(Range{}, h, changes)
}

// Follow calls h with each change of a range's objects from now on, until remove is called, as AddHandler does. It
// costs the same, however many objects there are. Recent and Page return what came before.
func (i *Informer[T]) Follow(of Range, h Handler[T]) (remove func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.subscribe(of, h, nil)
}

// subscribe adds a handler that is called with changes first. The caller holds mu.
func (i *Informer[T]) subscribe(of Range, h Handler[T], changes []change[T]) (remove func()) {
	s := &subscription[T]{of: of, handler: h}
	s.push(changes...)
	i.subscriptions[s] = struct{}{}
	return sync.OnceFunc(func() {
		i.mu.Lock()
		delete(i.subscriptions, s)
		i.mu.Unlock()
		s.end()
	})
}

// Handlers returns the number of handlers that were added and not removed.
func (i *Informer[T]) Handlers() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.subscriptions)
}

// Len returns the number of objects.
func (i *Informer[T]) Len() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects.count
}

// Get returns the object with key k, and false if there is none.
func (i *Informer[T]) Get(k Key) (T, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects.get(k)
}

// List returns the objects of a cluster in the order of their keys, or with Wildcard those of all clusters, each
// cluster's in that order.
func (i *Informer[T]) List(cluster logicalcluster.Name) []T {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects.list(cluster)
}

// Page returns up to n objects of a range, each cluster's in the order of their keys, and the key to give as after for
// the next page; the zero Key: there is none. A page may have fewer objects, or none, and yet not be the last. Whoever
// reads page after page, from the zero Key on, sees each object that exists all the while.
func (i *Informer[T]) Page(of Range, after Key, n int) (page []T, next Key) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects.page(of, after, n)
}

// Recent calls visit with the changes of a range's objects in the last minute since the first list, the oldest first.
// It knows MaxRecent changes of all ranges.
func (i *Informer[T]) Recent(of Range, visit Handler[T]) {
	i.mu.RLock()
	changes := i.recent.list()
	i.mu.RUnlock()
	for _, c := range changes {
		if of.Has(c.cluster()) {
			visit(c.old, c.new)
		}
	}
}

// ByIndex returns the objects of all clusters for which the index's indexer returned value, in no order. It panics if
// NewInformer was not given the index.
func (i *Informer[T]) ByIndex(index, value string) []T {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects.indexed(index, value)
}

// become stores obj under k and tells the handlers, unless the same version is stored already. The caller holds mu.
func (i *Informer[T]) become(k Key, obj T) {
	old, ok := i.objects.get(k)
	if ok && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion() && obj.GetResourceVersion() != "" {
		return
	}
	i.objects.set(k, obj)
	if ok && old.GetUID() != obj.GetUID() {
		i.tell(k, change[T]{old: old}, change[T]{new: obj})
		return
	}
	i.tell(k, change[T]{old: old, new: obj})
}

// begin stores the first obj under k, and tells the handlers. The caller holds mu.
func (i *Informer[T]) begin(k Key, obj T) {
	i.objects.set(k, obj)
	i.tell(k, change[T]{new: obj})
}

// vanish removes the object under k and tells the handlers that last was its last state. The caller holds mu.
func (i *Informer[T]) vanish(k Key, last T) {
	if _, ok := i.objects.get(k); !ok {
		return
	}
	i.objects.unset(k)
	i.tell(k, change[T]{old: last})
}

func (i *Informer[T]) tell(of Key, changes ...change[T]) {
	select {
	case <-i.synced:
		i.recent.add(time.Now(), changes...)
	default: // the first list is no change
	}
	for s := range i.subscriptions {
		if s.of.Has(of.Cluster) {
			s.push(changes...)
		}
	}
}

// intake is the store that the reflector writes to.
type intake[T Object] struct {
	informer *Informer[T]
	logger   klog.Logger
}

func (in *intake[T]) Add(obj any) error    { return in.apply(obj, in.informer.become) }
func (in *intake[T]) Update(obj any) error { return in.apply(obj, in.informer.become) }
func (in *intake[T]) Delete(obj any) error { return in.apply(obj, in.informer.vanish) }
func (in *intake[T]) Resync() error        { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater: it is called with each event, and with those that tell
// nothing but the revision.
func (in *intake[T]) UpdateResourceVersion(string) {
	in.informer.mu.Lock()
	defer in.informer.mu.Unlock()
	in.informer.recent.forget(time.Now())
}

func (in *intake[T]) apply(obj any, change func(Key, T)) error {
	k, typed, err := accept[T](obj)
	if err != nil {
		return err
	}
	in.informer.mu.Lock()
	defer in.informer.mu.Unlock()
	change(k, typed)
	return nil
}

// Replace takes a complete list: the first one, or one after a watch that could not be resumed. Objects that it lacks
// were deleted meanwhile.
func (in *intake[T]) Replace(list []any, _ string) error {
	listed := make([]entry[T], 0, len(list))
	for _, obj := range list {
		k, typed, err := accept[T](obj)
		if err != nil {
			in.logger.Error(err, "Object left out of the cache")
			continue
		}
		listed = append(listed, entry[T]{k, typed})
	}
	i := in.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if there := i.objects.list(Wildcard); len(there) > 0 {
		keys := make(map[Key]struct{}, len(listed))
		for _, e := range listed {
			keys[e.key] = struct{}{}
		}
		for _, old := range there {
			k := KeyOf(old)
			if _, ok := keys[k]; !ok {
				i.vanish(k, old)
			}
		}
	}
	become := i.become
	if i.objects.count == 0 { // a first list may have a million objects: nothing needs to be looked up
		become = i.begin
	}
	for _, e := range listed { // in the order of the list, which is that of keys: so each tree grows at its end
		become(e.key, e.obj)
	}
	select {
	case <-i.synced:
	default:
		close(i.synced)
	}
	return nil
}

// accept returns an object with its key. It refuses objects without a cluster: objects of several clusters could share
// an incomplete key.
func accept[T Object](obj any) (Key, T, error) {
	typed, ok := obj.(T)
	if !ok {
		return Key{}, typed, fmt.Errorf("expected an object of type %s, got %T", reflect.TypeFor[T](), obj)
	}
	k := KeyOf(typed)
	if k.Cluster.Empty() {
		return Key{}, typed, fmt.Errorf("object %s (uid %s) has no annotation %s: it was not read through a shard's storage", k, typed.GetUID(), logicalcluster.AnnotationKey)
	}
	return k, typed, nil
}

var _ cache.ReflectorStore = (*intake[*metav1.PartialObjectMetadata])(nil)
