package join

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/election/internal/undone"
)

// Informer returns an informer that is i, except that event handlers which are added in a scope are removed at its end.
// Give it to code that does not remove its handlers.
func Informer(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &informer{SharedIndexInformer: i}
}

type informer struct {
	cache.SharedIndexInformer
	undone undone.Undone // by registration
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandler(h))
}

func (i *informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, resync))
}

func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

func (i *informer) removedOnEnd(added cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if s := current(); err == nil && s != nil {
		var forget atomic.Pointer[func()] // kept before the scope can end and remove the handler
		i.undone.Keep(added, func() {
			if f := forget.Load(); f != nil {
				(*f)()
			}
		})
		f := s.OnEnd(func() { _ = i.RemoveEventHandler(added) }) // fails only for a handler of another informer
		forget.Store(&f)
	}
	return added, err
}

// RemoveEventHandler removes a handler, and all that a scope keeps of it.
func (i *informer) RemoveEventHandler(added cache.ResourceEventHandlerRegistration) error {
	i.undone.Forget(added)
	return i.SharedIndexInformer.RemoveEventHandler(added)
}
