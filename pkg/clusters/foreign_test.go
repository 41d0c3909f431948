package clusters_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// runForeign runs an informer of another shard until the returned function is called.
func runForeign(t *testing.T, source *controllertest.Source[*corev1.ConfigMap]) (*clusters.Informer[*corev1.ConfigMap], func()) {
	inf := clusters.NewForeignInformer[*corev1.ConfigMap](source)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	synctest.Wait()
	return inf, func() {
		cancel()
		running.Wait()
	}
}

func TestObjectsOfDifferentShardsStayApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eu, us := controllertest.NewSource(configMap("root", "a", "eu")), controllertest.NewSource(configMap("root", "a", "us"))
		euInformer, stopEU := runForeign(t, eu)
		defer stopEU()
		usInformer, stopUS := runForeign(t, us)
		defer stopUS()
		foreign := clusters.NewForeign[*corev1.ConfigMap]()
		foreign.Add("eu", euInformer)
		removeUS := foreign.Add("us", usInformer)

		var j journal
		remove := foreign.Follow(func(shard string, old, new *corev1.ConfigMap) {
			j.mu.Lock()
			defer j.mu.Unlock()
			if new == nil {
				j.lines = append(j.lines, fmt.Sprintf("%s: deleted", shard))
				return
			}
			j.lines = append(j.lines, fmt.Sprintf("%s: %s", shard, new.Data["value"]))
		})
		j.expect(t) // what was there is no change
		eu.Set(configMap("root", "a", "eu, changed"))
		j.expect(t, "eu: eu, changed")
		for shard, want := range map[string]string{"eu": "eu, changed", "us": "us"} {
			if obj, ok := foreign.Get(shard, key("root", "a")); !ok || obj.Data["value"] != want {
				t.Errorf("%s has %v, %v", shard, obj, ok)
			}
			if page, _ := foreign.Page(shard, clusters.Key{}, 10); len(page) != 1 {
				t.Errorf("%s has %d objects", shard, len(page))
			}
		}

		removeUS() // its objects live on, so that nobody is told
		us.Set(configMap("root", "a", "us, changed"))
		j.expect(t)
		page, next := foreign.Page("us", clusters.Key{}, 10)
		if _, ok := foreign.Get("us", key("root", "a")); ok || len(page) != 0 || next != (clusters.Key{}) {
			t.Error("a shard that has gone has objects")
		}
		if diff := cmp.Diff([]string{"eu"}, foreign.Shards()); diff != "" {
			t.Error(diff)
		}
		defer foreign.Add("us", usInformer)()
		j.expect(t, "us: us, changed") // a shard that comes tells of all

		var recent []string
		foreign.Recent(func(shard string, _, new *corev1.ConfigMap) { recent = append(recent, shard+": "+new.Data["value"]) })
		if diff := cmp.Diff([]string{"eu: eu, changed", "us: us, changed"}, recent); diff != "" {
			t.Error(diff)
		}
		remove()
		eu.Set(configMap("root", "a", "eu, once more"))
		j.expect(t)
		if n := euInformer.Handlers() + usInformer.Handlers(); n != 0 {
			t.Errorf("%d handlers are left", n)
		}
	})
}
