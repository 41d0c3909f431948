package storage_test

import (
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// past is a history of keys, as etcd has it.
type past struct {
	events []*clientv3.Event // of revisions 1, 2, ...
	states []map[string]int  // sizes by key, from revision 0 on
}

func (p *past) write(key string, size int) {
	now := maps.Clone(p.states[len(p.states)-1])
	e := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: int64(len(p.states))}}
	if before, was := now[key]; was {
		e.PrevKv = &mvccpb.KeyValue{Key: []byte(key), Value: make([]byte, before)}
	}
	if size < 0 {
		e.Type = clientv3.EventTypeDelete
		delete(now, key)
	} else {
		e.Kv.Value = make([]byte, size)
		now[key] = size
	}
	p.events, p.states = append(p.events, e), append(p.states, now)
}

func (p *past) at(revision int) (kvs []*mvccpb.KeyValue) {
	for key, size := range p.states[revision] {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(key), Value: make([]byte, size)})
	}
	return kvs
}

// Lists and watches are interrupted at any time, and begin again with what was counted already.
func TestWhatIsCountedIsWhatIsStoredHoweverItWasHeardOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &past{states: []map[string]int{{}}}
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			key := fmt.Sprintf("/registry/core/configmaps/%s/default/%d", rapid.SampledFrom([]string{"x1", "x2", "x3"}).Draw(t, "cluster"), rapid.IntRange(0, 3).Draw(t, "name"))
			size := rapid.IntRange(-1, 5).Draw(t, "size")
			if _, is := p.states[len(p.states)-1][key]; size < 0 && !is {
				continue // etcd reports no deletion of what is not there
			}
			p.write(key, size)
		}
		last := len(p.events)
		tally := storage.NewTally("/registry/core/configmaps")
		heard := 0
		for first := true; heard < last; first = false {
			if first || rapid.IntRange(0, 4).Draw(t, "again") == 0 {
				heard = rapid.IntRange(heard, last).Draw(t, "listed at")
				kvs := p.at(heard)
				cut := rapid.IntRange(0, len(kvs)).Draw(t, "pages")
				if rapid.Bool().Draw(t, "interrupted") {
					tally.ListInterrupted(kvs[:cut])
				}
				tally.List(int64(heard), kvs[:cut], kvs[cut:])
				continue
			}
			from := rapid.IntRange(max(0, heard-5), heard).Draw(t, "watched from")
			to := rapid.IntRange(from, last).Draw(t, "watched to")
			tally.Watch(p.events[from:to])
			heard = max(heard, to)
		}
		var all storage.Amount
		want := map[logicalcluster.Name]storage.Amount{}
		for key, size := range p.states[last] {
			of := logicalcluster.Name(strings.Split(key, "/")[4])
			want[of] = storage.Amount{Objects: want[of].Objects + 1, Bytes: want[of].Bytes + int64(size)}
			all = storage.Amount{Objects: all.Objects + 1, Bytes: all.Bytes + int64(size)}
		}
		for _, of := range []logicalcluster.Name{"x1", "x2", "x3"} {
			if got := tally.In(of); got != want[of] {
				t.Fatalf("%s has %+v, counted are %+v", of, want[of], got)
			}
		}
		if got := tally.In(clusters.Wildcard); got != all || tally.Clusters() != len(want) {
			t.Fatalf("all have %+v, counted are %+v, of %d clusters", all, got, tally.Clusters())
		}
	})
}

func TestWhatClustersStoreIsKnown(t *testing.T) {
	way := etcdtest.Start(t)
	early := newClient(t, way)
	first := openOver(t, early, corev1.Resource("configmaps"), false)
	waitUntilFilled(t, first)
	write := func(layers upstream.Interface, cluster logicalcluster.Name, name string, bytes int) {
		t.Helper()
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"a": strings.Repeat("x", bytes)}}
		if err := layers.Create(clusters.With(t.Context(), cluster), "/core/configmaps/default/"+name, obj, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 30 {
		write(first, []logicalcluster.Name{"x1", "x2"}[n%2], fmt.Sprint("n", n), 100*n)
	}
	late := newClient(t, way) // finds them there
	second := openOver(t, late, corev1.Resource("configmaps"), false)
	waitUntilFilled(t, second)
	write(second, "x1", "new", 1)
	ctx := clusters.With(t.Context(), "x2")
	if err := second.Delete(ctx, "/core/configmaps/default/n1", &corev1.ConfigMap{}, nil, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := second.GuaranteedUpdate(ctx, "/core/configmaps/default/n3", &corev1.ConfigMap{}, false, nil, upstream.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*corev1.ConfigMap).Data = nil
		return obj, nil
	}), nil); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*storage.Client{"watched": early, "listed": late} {
		for _, cluster := range []logicalcluster.Name{"x1", "x2", "x3", clusters.Wildcard} {
			want := amountIn(t, client, cluster)
			again, over := time.NewTicker(time.Millisecond), time.After(10*time.Second)
			for client.StoredIn(cluster) != want || client.Stored(cluster, corev1.Resource("configmaps")) != want {
				select {
				case <-again.C:
					continue
				case <-over:
				}
				t.Fatalf("%s: cluster %s has %+v, counted are %+v, and %+v of all resources", name, cluster, want,
					client.Stored(cluster, corev1.Resource("configmaps")), client.StoredIn(cluster))
			}
			again.Stop()
		}
	}
	if got := early.Stored("x1", corev1.Resource("secrets")); got != (storage.Amount{}) {
		t.Errorf("of what is not stored there is %+v", got)
	}
}

// amountIn reads how much a cluster has, or all with clusters.Wildcard.
func amountIn(t *testing.T, client *storage.Client, cluster logicalcluster.Name) storage.Amount {
	t.Helper()
	prefix := "/registry/core/configmaps/" + cluster.String() + "/"
	if cluster == clusters.Wildcard {
		prefix = "/registry/core/configmaps/"
	}
	resp, err := client.Etcd().Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := storage.Amount{Objects: resp.Count}
	for _, kv := range resp.Kvs {
		out.Bytes += int64(len(kv.Value))
	}
	return out
}

// BenchmarkTally is what a hundred thousand clusters cost.
func BenchmarkTally(b *testing.B) {
	var kvs []*mvccpb.KeyValue
	for n := range 100_000 {
		kvs = append(kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/core/configmaps/cluster%07d/default/a", n), Value: make([]byte, 10)})
	}
	tally := storage.NewTally("/registry/core/configmaps")
	before := heap()
	tally.List(1, slices.Clone(kvs))
	each := float64(heap()-before) / float64(len(kvs))
	event := []*clientv3.Event{{Kv: kvs[77], PrevKv: kvs[77]}}
	revision := int64(1)
	for b.Loop() {
		revision++
		event[0].Kv.ModRevision = revision
		tally.Watch(event)
	}
	b.ReportMetric(each, "B/cluster")
	if tally.In("cluster0000077").Objects != 1 {
		b.Error("it is counted twice")
	}
}

// heap returns how many bytes live.
func heap() uint64 {
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A cluster of which nothing is listed yet is not taken for one that has nothing.
func TestATallyKnowsNothingBeforeItsFirstList(t *testing.T) {
	tally := storage.NewTally("/registry/core/configmaps")
	if tally.ListedAll() {
		t.Error("it has listed nothing")
	}
	if tally.ListInterrupted(nil); tally.ListedAll() {
		t.Error("its list was interrupted")
	}
	if tally.List(7); !tally.ListedAll() {
		t.Error("it has listed all")
	}
}
