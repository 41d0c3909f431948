package perterm

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election/join"
)

func notSynced() cache.InformerGetOption { return cache.BlockUntilSynced(false) }

// loan is the cache of the process, and what terms have done to it for good.
type loan struct {
	cache.Cache

	started sync.Map // by kind: what has an informer

	mu      sync.Mutex
	indexed map[index]bool
}

func newLoan(c cache.Cache) *loan { return &loan{Cache: c, indexed: map[index]bool{}} }

// kind identifies objects, or lists, that have an informer. One type of Go can stand for several: unstructured objects, metadata.
type kind struct {
	reflect.Type
	schema.GroupVersionKind
}

func kindOf(obj runtime.Object) kind {
	return kind{reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind()}
}

type index struct {
	kind
	field string
}

// outside calls f, which may start the informer of a kind, for the first time outside of the term's scope: the informer lives on with the process.
func (l *loan) outside(obj runtime.Object, f func() error) error {
	kind := kindOf(obj)
	if _, ok := l.started.Load(kind); ok {
		return f()
	}
	var err error
	join.Outside(func() { err = f() })
	if err == nil || apierrors.IsNotFound(err) {
		l.started.Store(kind, nil)
	}
	return err
}

// lent is the cache of a term. It is neither started nor stopped, and forgets the term's event handlers at the end.
type lent struct {
	cache.Cache
	loan  *loan
	scope *join.Scope
	over  <-chan struct{} // closed when the term's context ends

	indexed map[index]bool // by this term; loan.mu guards it
}

// Start returns at the end of the term: the process has started the cache.
func (*lent) Start(ctx context.Context) error { <-ctx.Done(); return nil }

// Get implements client.Reader.
func (l *lent) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return l.loan.outside(obj, func() error { return l.Cache.Get(ctx, key, obj, opts...) }) //nolint:contextcheck // f has it
}

// List implements client.Reader.
func (l *lent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.loan.outside(list, func() error { return l.Cache.List(ctx, list, opts...) }) //nolint:contextcheck // f has it
}

// GetInformer implements cache.Informers.
func (l *lent) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (i cache.Informer, err error) {
	join.Outside(func() { i, err = l.Cache.GetInformer(ctx, obj, opts...) }) //nolint:contextcheck // f has it
	return l.lend(i, err)
}

// GetInformerForKind implements cache.Informers.
func (l *lent) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (i cache.Informer, err error) {
	join.Outside(func() { i, err = l.Cache.GetInformerForKind(ctx, kind, opts...) }) //nolint:contextcheck // f has it
	return l.lend(i, err)
}

func (l *lent) lend(i cache.Informer, err error) (cache.Informer, error) {
	if err != nil {
		return nil, err
	}
	return &informer{i, l.scope, l.over}, nil
}

// errRemoval is the error of RemoveInformer.
var errRemoval = errors.New("the informer is the process's, and the next term needs it: remove it from the cache of the process's manager")

// RemoveInformer returns an error.
func (*lent) RemoveInformer(context.Context, client.Object) error { return errRemoval }

// IndexField adds an index that an earlier term has not added yet.
func (l *lent) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) (err error) {
	name := index{kindOf(obj), field}
	l.loan.mu.Lock()
	defer l.loan.mu.Unlock()
	if l.loan.indexed[name] && !l.indexed[name] {
		l.indexed[name] = true
		return nil
	}
	join.Outside(func() { err = l.Cache.IndexField(ctx, obj, field, extract) }) //nolint:contextcheck // f has it
	if err == nil {
		l.loan.indexed[name], l.indexed[name] = true, true
	}
	return err
}

// informer forgets the event handlers of a term at its end.
type informer struct {
	cache.Informer
	scope *join.Scope
	over  <-chan struct{} // as of lent
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandler(h))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandlerWithResyncPeriod(h, resync))
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.added(i.Informer.AddEventHandlerWithOptions(h, o))
}

// added removes the handler at the end of the term, and waits until it has seen what a full cache holds.
func (i *informer) added(r toolscache.ResourceEventHandlerRegistration, err error) (toolscache.ResourceEventHandlerRegistration, error) {
	if err != nil {
		return r, err
	}
	i.scope.OnEnd(func() { _ = i.RemoveEventHandler(r) }) // fails only for a handler of another informer
	if i.HasSynced() {
		i.awaitSync(r)
	}
	return r, nil
}

// syncPatience bounds the wait for a handler, which may itself wait for who adds it.
const syncPatience = time.Second

// awaitSync waits until the handler has seen all that the cache holds, which takes about a millisecond. A controller begins to work after that, but looks with
// client-go's WaitForCacheSync: its first look would come too early, and the next one 100 ms later, in each term.
func (i *informer) awaitSync(r toolscache.ResourceEventHandlerRegistration) {
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	select {
	case <-r.HasSyncedChecker().Done():
	case <-i.over:
	case <-patience.C:
	}
}
