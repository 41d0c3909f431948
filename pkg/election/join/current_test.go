package join

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestOnEndFindsTheScopeOfTheCallingGoroutine(t *testing.T) {
	OnEnd(func() { t.Error("undone, though it is of no scope") })
	for name, how := range map[string]struct {
		debug  string
		lookAt int64 // how many looks it takes
		call   func(f func())
	}{
		"in Do":                          {"", 0, func(f func()) { f() }},
		"elsewhere":                      {"", 1, func(f func()) { <-ends(f) }},
		"elsewhere, by labels in stacks": {"tracebacklabels=1", 0, func(f func()) { <-ends(f) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GODEBUG", how.debug)
			headersShowLabels = showLabels
			if got, want := showLabels(), how.debug != ""; got != want { // whoever asks: here of no scope
				t.Errorf("headers show labels: %v, want %v", got, want)
			}
			var undone []string
			outer := scope(t)
			outer.Do(func(ctx context.Context) {
				inner := New(ctx, quiet)
				inner.Do(func(context.Context) {
					before := looks.begun.Load()
					how.call(func() { OnEnd(func() { undone = append(undone, "inner") }) })
					if n := looks.begun.Load() - before; n != how.lookAt {
						t.Errorf("%d looks, want %d", n, how.lookAt)
					}
				})
				how.call(func() { OnEnd(func() { undone = append(undone, "outer") }) })
				inner.End()
				undone = append(undone, "end of inner")
			})
			how.call(func() { OnEnd(func() { t.Error("undone, though it is of no scope") }) })
			outer.End()
			if got, want := fmt.Sprint(undone), "[inner end of inner outer]"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// newInformer returns an informer that has not been started, and the source of its events. Its first list is empty.
func newInformer() (cache.SharedIndexInformer, *watch.FakeWatcher) {
	source := watch.NewFake()
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("list first")
			}
			return source, nil
		},
	}, &metav1.PartialObjectMetadata{}, 0, nil), source
}

// start runs an informer until the end of the test.
func start(t *testing.T, i cache.SharedIndexInformer) {
	stop := make(chan struct{})
	running := ends(func() { i.Run(stop) })
	t.Cleanup(func() {
		close(stop)
		mustEnd(t, "the informer", running)
	})
}

func object(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestHandlersThatAreAddedInAScopeAreRemovedAtItsEnd(t *testing.T) {
	process, source := newInformer()
	start(t, process)
	eventually(t, "the informer is synced", process.HasSynced)

	lent, seen := Informer(process), make(chan string, 10)
	handler := func(of string) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen <- of }}
	}
	s := scope(t)
	s.Do(func(context.Context) {
		for _, add := range []func() (cache.ResourceEventHandlerRegistration, error){
			func() (cache.ResourceEventHandlerRegistration, error) { return lent.AddEventHandler(handler("scope")) },
			func() (cache.ResourceEventHandlerRegistration, error) {
				return lent.AddEventHandlerWithResyncPeriod(handler("scope"), time.Hour)
			},
			func() (cache.ResourceEventHandlerRegistration, error) {
				return lent.AddEventHandlerWithOptions(handler("scope"), cache.HandlerOptions{})
			},
		} {
			if _, err := add(); err != nil {
				t.Error(err)
			}
		}
		Outside(func() {
			if _, err := lent.AddEventHandler(handler("process")); err != nil {
				t.Error(err)
			}
		})
	})
	add := func(name string) {
		source.Add(object(name))
	}
	add("a")
	for range 4 {
		<-seen
	}
	mustEnd(t, "the end", ends(s.End))
	add("b")
	if of := <-seen; of != "process" || len(seen) > 0 {
		t.Errorf("a handler of the %s has run", of)
	}
}
