package server

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis"
)

// A replica that is ready, or leads, with a cold cache would decide by what it has not seen.
func TestAReplicaIsReadyWhenEveryInformerHasReadAllObjects(t *testing.T) {
	for cold := range overAnEmptyShard().All() {
		t.Run(cold, func(t *testing.T) {
			informers := overAnEmptyShard()
			var g goroutines
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(func() {
				cancel()
				g.Join()
			})
			all := informers.All()
			for name, informer := range all {
				if name != cold {
					g.Go(name, func() error { return informer.Run(ctx) })
				}
			}
			for name, informer := range all {
				if name != cold {
					untilSynced(t, name, informer)
				}
			}
			if err := informersCheck(informers).Check(nil); err == nil || !strings.Contains(err.Error(), "the informer of "+cold+" ") {
				t.Errorf("ready without it: %v", err)
			}
			if waits := synced(informers)[cold]; waits != all[cold].Synced() {
				t.Error("an election would not wait for it")
			}
		})
	}
}

func TestAllInformersRun(t *testing.T) {
	informers := overAnEmptyShard()
	var l lifetime
	l.ctx, l.end = context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		l.end(nil)
		l.Join()
	})
	runInformers(&l, informers)
	for name, informer := range informers.All() {
		untilSynced(t, name, informer)
	}
	if err := informersCheck(informers).Check(nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func untilSynced(t *testing.T, name string, informer controllers.Informer) {
	t.Helper()
	select {
	case <-informer.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("the informer of %s reads nothing", name)
	}
}

// overAnEmptyShard returns what makes the informers of a replica, over a shard in which there is nothing.
func overAnEmptyShard() controllers.Informers {
	var resources []controllers.Resource
	for _, r := range apis.Resources() {
		resources = append(resources, controllers.Resource(r))
	}
	return controllers.NewInformers(empty{}, resources)
}

// empty is a source with no objects.
type empty struct{}

func (empty) Objects(schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
}

func (e empty) Metadata(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return e.Objects(resource)
}

func (e empty) CustomObjects() cache.ListerWatcherWithContext {
	return e.Objects(schema.GroupVersionResource{})
}
