package clusters

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Store is told which objects another shard has. Its methods are called one after the other.
type Store[T Object] interface {
	// Set is called with an object that is new or has changed, Unset with the last state of one that has gone.
	Set(T)
	Unset(T)
	// Replace is called with all objects: first of all, and after a watch that could not be resumed. Objects that
	// are missing have gone.
	Replace([]T)
}

// Mirror tells a store what lw lists and watches at another shard, until ctx ends. It is for those who need to keep
// less than an Informer does. It survives any number of errors, and logs none, as an informer of NewForeignInformer.
func Mirror[T Object](ctx context.Context, lw cache.ListerWatcherWithContext, store Store[T]) {
	run[T](klog.NewContext(ctx, logr.Discard()), &source{ListerWatcherWithContext: lw}, mirrored[T]{store}, &foreignBackoff)
}

// mirrored is the store that the reflector writes to. Objects that are not what was asked for are left out.
type mirrored[T Object] struct{ to Store[T] }

func (m mirrored[T]) Add(obj any) error    { return apply(obj, m.to.Set) }
func (m mirrored[T]) Update(obj any) error { return apply(obj, m.to.Set) }
func (m mirrored[T]) Delete(obj any) error { return apply(obj, m.to.Unset) }
func (m mirrored[T]) Resync() error        { return nil }

func (m mirrored[T]) Replace(list []any, _ string) error {
	all := make([]T, 0, len(list))
	for _, obj := range list {
		_ = apply(obj, func(typed T) { all = append(all, typed) })
	}
	m.to.Replace(all)
	return nil
}

func apply[T Object](obj any, do func(T)) error {
	_, typed, err := accept[T](obj)
	if err == nil {
		do(typed)
	}
	return err
}

var _ cache.ReflectorStore = mirrored[Object]{}
