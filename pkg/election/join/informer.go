package join

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// Informer returns an informer that is i, except that event handlers which are added in a scope are removed at its end. Give it to
// code that does not remove its handlers.
func Informer(i cache.SharedIndexInformer) cache.SharedIndexInformer { return informer{i} }

type informer struct{ cache.SharedIndexInformer }

func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandler(h))
}

func (i informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, resync))
}

func (i informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.removedOnEnd(i.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

func (i informer) removedOnEnd(added cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		OnEnd(func() { _ = i.RemoveEventHandler(added) }) // fails only for a handler of another informer
	}
	return added, err
}
