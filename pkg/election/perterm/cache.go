package perterm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election/internal/undone"
	"github.com/regent-project/regent/pkg/election/join"
)

func notSynced() cache.InformerGetOption { return cache.BlockUntilSynced(false) }

// loan is the cache of the process, and what terms have done to it for good.
type loan struct {
	cache.Cache
	patience time.Duration // how long anybody waits for a kind to sync

	mu      sync.Mutex
	indexed map[index]bool
}

// defaultPatience is controller-runtime's default of a controller's CacheSyncTimeout.
const defaultPatience = 2 * time.Minute

func newLoan(c cache.Cache, patience time.Duration) *loan {
	if patience <= 0 {
		patience = defaultPatience
	}
	return &loan{Cache: c, patience: patience, indexed: map[index]bool{}}
}

// kind identifies objects, or lists, that have an informer. One type of Go can stand for several: unstructured objects,
// metadata.
type kind struct {
	reflect.Type
	schema.GroupVersionKind
}

func kindOf(obj runtime.Object) kind {
	return kind{reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind()}
}

// String is how errors name it.
func (k kind) String() string {
	if k.Empty() {
		return k.Type.String()
	}
	return k.GroupVersionKind.String()
}

type index struct {
	kind
	field string
}

// await calls f, which may start the informer of a kind and wait until that has synced. It does so outside of the
// term's scope, because such an informer lives on with the process: which reads start one, only the cache knows. It may
// be the second namespace of a cache of several, or a kind that the process has removed. Whatever cannot be listed
// costs who asks for it, and only for so long. A read for which the server is asked waits for no informer: it takes as
// long as its context, and the client, let it.
func (l *loan) await(ctx context.Context, k kind, f func(ctx context.Context) error) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var asked atomic.Bool
	patience := time.AfterFunc(l.patience, func() {
		if !asked.Load() {
			cancel(&unsyncedError{[]kind{k}, l.patience})
		}
	})
	defer patience.Stop()
	var err error
	join.Outside(func() { err = f(context.WithValue(bounded, askedKey{}, &asked)) }) //nolint:contextcheck // f has it
	if unsynced, late := errors.AsType[*unsyncedError](context.Cause(bounded)); err != nil && late {
		// and not that of a context that was cancelled: nobody has cancelled the caller's
		return fmt.Errorf("%w: %w", unsynced, context.DeadlineExceeded)
	}
	return err
}

// unsyncedError says that kinds have not been listed for that long.
type unsyncedError struct {
	kinds []kind
	after time.Duration
}

// Error implements error.
func (e *unsyncedError) Error() string {
	names := make([]string, len(e.kinds))
	for i, k := range e.kinds {
		names[i] = k.String()
	}
	return fmt.Sprintf("the cache has not synced %s within %v: see whether the server has it, and whether this account may list and watch it", strings.Join(names, ", "), e.after)
}

// termCache is the cache of a term. It is neither started nor stopped, and forgets the term's event handlers at the
// end.
type termCache struct {
	cache.Cache
	loan  *loan
	scope *join.Scope
	over  <-chan struct{} // closed when the term's context ends
	fail  func(error)     // ends the term
	owns  func(any) bool  // nil: all objects are the term's

	indexed map[index]bool // by this term; loan.mu guards it

	mu    sync.Mutex
	asked map[kind]cache.Informer // those that the term was given before they had synced

	undone undone.Undone // by registration of an event handler
}

func (t *tenancy) cache() *termCache {
	return &termCache{
		Cache: t.loan.Cache, loan: t.loan, scope: t.scope, over: t.ctx.Done(), fail: t.fail, owns: t.owns(),
		indexed: map[index]bool{}, asked: map[kind]cache.Informer{},
	}
}

// Start returns at the end of the term: the process has started the cache.
func (*termCache) Start(ctx context.Context) error { <-ctx.Done(); return nil }

// look is the pause between two looks at informers that have not synced.
const look = 5 * time.Millisecond

// WaitForCacheSync waits for the informers that this term has asked for without waiting. What other terms have asked
// for is no concern of this one. If one does not sync in time, the term fails. At the end of the term it returns true,
// as long as ctx goes on: controller-runtime's manager would otherwise wait for ever for its cache, and spin, when it
// is asked to stop.
func (l *termCache) WaitForCacheSync(ctx context.Context) bool {
	deadline, tick := time.NewTimer(l.loan.patience), time.NewTicker(look)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		unsynced := l.unsynced()
		if len(unsynced) == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			l.fail(&unsyncedError{unsynced, l.loan.patience})
		case <-l.over:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

// unsynced returns the kinds that the term waits for.
func (l *termCache) unsynced() (kinds []kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, informer := range l.asked {
		if !informer.HasSynced() && !informer.IsStopped() {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Get implements client.Reader.
func (l *termCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return l.loan.await(ctx, kindOf(obj), func(ctx context.Context) error { return l.Cache.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader.
func (l *termCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.loan.await(ctx, kindOf(list), func(ctx context.Context) error { return l.Cache.List(ctx, list, opts...) })
}

// GetInformer implements cache.Informers.
func (l *termCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (i cache.Informer, err error) {
	err = l.loan.await(ctx, kindOf(obj), func(ctx context.Context) (err error) {
		i, err = l.Cache.GetInformer(ctx, obj, opts...)
		return err
	})
	return l.lend(kindOf(obj), i, err)
}

// GetInformerForKind implements cache.Informers.
func (l *termCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (i cache.Informer, err error) {
	err = l.loan.await(ctx, kind{nil, gvk}, func(ctx context.Context) (err error) {
		i, err = l.Cache.GetInformerForKind(ctx, gvk, opts...)
		return err
	})
	return l.lend(kind{nil, gvk}, i, err)
}

func (l *termCache) lend(k kind, i cache.Informer, err error) (cache.Informer, error) {
	if err != nil {
		return nil, err
	}
	if !i.HasSynced() {
		l.mu.Lock()
		l.asked[k] = i
		l.mu.Unlock()
	}
	return &informer{Informer: i, scope: l.scope, over: l.over, owns: l.owns, undone: &l.undone}, nil
}

// errRemoval is the error of RemoveInformer.
var errRemoval = errors.New("the informer is the process's, and the next term needs it: remove it from the cache of the process's manager")

// RemoveInformer returns an error.
func (*termCache) RemoveInformer(context.Context, client.Object) error { return errRemoval }

// IndexField adds an index that an earlier term has not added yet, or not to the present informer: the process may have
// removed the one that had it.
func (l *termCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) (err error) {
	name := index{kindOf(obj), field}
	l.loan.mu.Lock()
	defer l.loan.mu.Unlock()
	join.Outside(func() { err = l.Cache.IndexField(ctx, obj, field, extract) }) //nolint:contextcheck // f has it
	if err != nil && l.loan.indexed[name] && !l.indexed[name] && strings.Contains(err.Error(), indexed) {
		err = nil
	}
	if err == nil {
		l.loan.indexed[name], l.indexed[name] = true, true
	}
	return err
}

// indexed is how client-go says that an informer has an index of that name.
const indexed = "indexer conflict"

// informer forgets the event handlers of a term at its end.
type informer struct {
	cache.Informer
	scope *join.Scope
	over  <-chan struct{} // as of termCache
	owns  func(any) bool  // as of termCache

	undone *undone.Undone // by registration; of all informers of the term
}

// RemoveEventHandler implements cache.Informer. The term keeps nothing of a handler that it has removed itself.
func (i *informer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	i.undone.Forget(r)
	return i.Informer.RemoveEventHandler(r)
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandler(i.filtered(h)))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandlerWithResyncPeriod(i.filtered(h), resync))
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandlerWithOptions(i.filtered(h), o))
}

// filtered returns a handler that sees only what is the term's.
func (i *informer) filtered(h toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	if i.owns == nil {
		return h
	}
	return toolscache.FilteringResourceEventHandler{FilterFunc: i.owns, Handler: h}
}

// added removes the handler at the end of the term, and waits until it has seen what a full cache holds.
func (i *informer) added(r toolscache.ResourceEventHandlerRegistration, err error) (toolscache.ResourceEventHandlerRegistration, error) {
	if err != nil {
		return r, err
	}
	// fails only for a handler of another informer
	i.undone.Keep(r, i.scope.OnEnd(func() { _ = i.RemoveEventHandler(r) }))
	if i.HasSynced() {
		i.awaitSync(r)
	}
	return r, nil
}

// syncPatience bounds the wait for a handler, which may itself wait for who adds it.
const syncPatience = time.Second

// awaitSync waits until the handler has seen all that the cache holds, which takes about a millisecond. A controller
// begins to work after that, but looks with client-go's WaitForCacheSync: its first look would come too early, and the
// next one 100 ms later, in each term.
func (i *informer) awaitSync(r toolscache.ResourceEventHandlerRegistration) {
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	select {
	case <-r.HasSyncedChecker().Done():
	case <-i.over:
	case <-patience.C:
	}
}
