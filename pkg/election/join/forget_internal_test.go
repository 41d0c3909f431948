package join

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// A term may last for months, and what its work adds and removes again must not add up.
func TestAScopeKeepsNothingOfWhatWasRemoved(t *testing.T) {
	s := New(t.Context(), Options{Patience: -1})
	defer s.End()
	i := Informer(cache.NewSharedIndexInformer(&cache.ListWatch{}, &runtime.Unknown{}, 0, nil))
	s.Do(func(context.Context) {
		for range 100 {
			r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := i.RemoveEventHandler(r); err != nil {
				t.Error(err)
			}
			forget := OnEnd(func() { t.Error("it is undone twice") })
			forget()
			forget()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.undo.Len(); n != 0 {
		t.Errorf("the scope keeps %d functions", n)
	}
}
