package storage_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

const configMaps = "/core/configmaps"

// openFilled returns the layers of configmaps over an etcd of their own, with a filled watch cache.
func openFilled(t testing.TB) upstream.Interface {
	t.Helper()
	layers := open(t, false)
	waitUntilFilled(t, layers)
	return layers
}

// put creates a number of configmaps in a cluster.
func put(t testing.TB, layers upstream.Interface, cluster logicalcluster.Name, prefix string, n int) {
	t.Helper()
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s%d", prefix, i)}}
		if err := layers.Create(clusters.With(t.Context(), cluster), configMaps+"/default/"+cm.Name, cm, nil, 0); err != nil {
			t.Error(err)
			return
		}
	}
}

// follow watches the configmaps of a cluster, or of all, from now on.
func follow(t testing.TB, layers upstream.Interface, cluster logicalcluster.Name, p upstream.SelectionPredicate) watch.Interface {
	t.Helper()
	w, err := layers.Watch(clusters.With(t.Context(), cluster), configMaps, upstream.ListOptions{ResourceVersion: "0", Predicate: p, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// receive returns the names of the next n objects of a watch, fewer if it ends.
func receive(w watch.Interface, n int) (names []string) {
	for event := range w.ResultChan() {
		obj := event.Object
		if shared, ok := obj.(runtime.CacheableObject); ok { // what goes to several watchers
			obj = shared.GetObject()
		}
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			break
		}
		if names = append(names, cm.Name); len(names) == n {
			break
		}
	}
	return names
}

// A write reaches the watchers of its cluster and of all clusters. It does not even reach the buffers of others:
// upstream cuts off a watcher whose buffers are full.
func TestAWriteWakesTheWatchersOfItsOwnClusterOnlyI12(t *testing.T) {
	const full, more = 9, 40 // buffers hold 10 events, and 10 results for those that are passed on in time
	layers := openFilled(t)
	all, here := follow(t, layers, clusters.Wildcard, upstream.Everything), follow(t, layers, "here", upstream.Everything)
	there, idle := follow(t, layers, "there", upstream.Everything), follow(t, layers, "there", upstream.Everything)
	put(t, layers, "here", "a", full)
	if got := len(receive(all, full)); got != full {
		t.Errorf("the watcher of all clusters got %d of %d events", got, full)
	}
	for n := range more { // each is read before the next is written: a busy machine fills no buffer of who reads
		put(t, layers, "there", fmt.Sprintf("b%d-", n), 1)
		for _, w := range []watch.Interface{all, there} {
			if len(receive(w, 1)) != 1 {
				t.Fatalf("a watcher that reads got %d of %d events", n, more)
			}
		}
	}
	put(t, layers, "here", "c", 1)
	if got := receive(here, full+1); len(got) != full+1 {
		t.Errorf("the watcher of another cluster got %d of %d events: its buffers were filled by others' writes", len(got), full+1)
	}
	if got := len(receive(idle, more)); got == more {
		t.Errorf("a watcher that reads nothing keeps %d events: this test needs more of them to fill its buffers", got)
	}
}

// countingSelector selects everything and counts what it was asked about.
type countingSelector struct {
	labels.Selector
	asked *atomic.Int64
}

func (c countingSelector) Matches(labels.Labels) bool { c.asked.Add(1); return true }
func (c countingSelector) Empty() bool                { return false }

func TestAListWalksTheObjectsOfItsOwnClusterOnlyI12(t *testing.T) {
	layers := openFilled(t)
	for i := range 50 {
		put(t, layers, logicalcluster.Name(fmt.Sprintf("c%d", i)), "x", 2)
	}
	list := func(ctx context.Context, version string) (int, int64) {
		var out corev1.ConfigMapList
		asked := &atomic.Int64{}
		p := upstream.Everything
		p.Label, p.GetAttrs = countingSelector{labels.Everything(), asked}, upstream.DefaultNamespaceScopedAttr
		if err := layers.GetList(ctx, configMaps, upstream.ListOptions{ResourceVersion: version, Predicate: p, Recursive: true}, &out); err != nil {
			t.Fatal(err)
		}
		return len(out.Items), asked.Load()
	}
	for _, version := range []string{"", "0"} {
		if n, asked := list(clusters.With(t.Context(), "c7"), version); n != 2 || asked != 2 {
			t.Errorf("resourceVersion %q: %d objects, %d were looked at, want 2 and 2", version, n, asked)
		}
		if n, _ := list(clusters.With(t.Context(), clusters.Wildcard), version); n != 100 {
			t.Errorf("resourceVersion %q: %d objects in all clusters, want 100", version, n)
		}
	}
}

// What a watch of one cluster selects besides is still selected, from the beginning and later.
func TestAWatchOfOneClusterSelectsAsBefore(t *testing.T) {
	layers := openFilled(t)
	put(t, layers, "here", "early", 3)
	p := upstream.Everything
	p.GetAttrs = upstream.DefaultNamespaceScopedAttr
	p.Field = fields.OneTermNotEqualSelector("metadata.name", "early1")
	w := follow(t, layers, "here", p)
	for range receive(w, 2) { // in the order of their names
	}
	put(t, layers, "there", "late", 1)
	p.Field = fields.OneTermEqualSelector("metadata.name", "early1")
	one := follow(t, layers, "here", p)
	if got := receive(one, 1); got[0] != "early1" {
		t.Errorf("the watch of one object shows %v", got)
	}
	out := &corev1.ConfigMap{}
	for _, name := range []string{"early1", "early2"} {
		touch := upstream.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
			cm := o.(*corev1.ConfigMap)
			cm.Data = map[string]string{"touched": "yes"}
			return cm, nil
		})
		if err := layers.GuaranteedUpdate(clusters.With(t.Context(), "here"), configMaps+"/default/"+name, out, false, nil, touch, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(w, 1); got[0] != "early2" {
		t.Errorf("the watch shows %v, want early2: early1 is not selected, and late0 is in another cluster", got)
	}
	if got := receive(one, 1); got[0] != "early1" {
		t.Errorf("the watch of one object shows %v", got)
	}
}
