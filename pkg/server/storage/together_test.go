package storage_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

// A watch ends anywhere: the server ends those that are slow. A client that goes on from the last revision has seen all
// in the end, because no two objects are written in one revision.
func TestAWatchThatEndsAnywhereAndGoesOnMissesNothing(t *testing.T) {
	layers := openFilled(t)
	const writers, each = 4, 100
	everything := upstream.ListOptions{Predicate: upstream.Everything, Recursive: true}
	empty := &corev1.ConfigMapList{}
	ctx := clusters.With(t.Context(), clusters.Wildcard)
	if err := layers.GetList(ctx, configMaps, everything, empty); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() { put(t, layers, "x1", fmt.Sprintf("w%d-", w), each) })
	}
	// a watch may tell of a write before its answer is there, and the test's context ends before its cleanups
	defer writing.Wait()
	seen, from, ended := map[string]bool{}, empty.ResourceVersion, 0
	for late := time.After(time.Minute); len(seen) < writers*each; ended++ {
		everything.ResourceVersion = from
		w, err := layers.Watch(ctx, configMaps, everything)
		if err != nil {
			t.Fatal(err)
		}
		for left := 1 + rand.IntN(20); left > 0 && len(seen) < writers*each; left-- {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					left = 0 // the server has ended it
					continue
				}
				obj := event.Object
				if shared, ok := obj.(runtime.CacheableObject); ok {
					obj = shared.GetObject()
				}
				of, err := meta.Accessor(obj)
				if err != nil {
					t.Fatalf("%s: %v", event.Type, obj)
				}
				seen[of.GetName()], from = true, of.GetResourceVersion()
			case <-late:
				t.Fatalf("of %d objects %d were seen, with %d watches", writers*each, len(seen), ended)
			}
		}
		w.Stop()
	}
}

func TestWhatIsWrittenTogetherIsToldOfOnce(t *testing.T) {
	at := func(revisions ...int64) (events []*clientv3.Event) {
		for n, revision := range revisions {
			events = append(events, &clientv3.Event{Kv: &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/core/configmaps/x1/default/%d", n), ModRevision: revision}})
		}
		return events
	}
	var told []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}))
	tally := storage.NewTally(configMaps)
	for _, alone := range [][]*clientv3.Event{nil, at(1), at(2, 3, 4), at(4)} {
		if tally.Tell(ctx, alone); len(told) > 0 {
			t.Fatalf("each had a revision of its own: %v", told)
		}
	}
	tally.Tell(ctx, at(5, 6, 6, 6))
	tally.Tell(ctx, at(7, 7))
	if len(told) != 1 || !strings.Contains(told[0], "default/2") || !strings.Contains(told[0], "restart the replicas") {
		t.Errorf("told of %q", told)
	}
}
