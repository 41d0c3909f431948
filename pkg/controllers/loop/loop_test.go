package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configMap(cluster, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", Annotations: map[string]string{"kcp.io/cluster": cluster}}}
}

func keys(c *corev1.ConfigMap) []clusters.Key { return []clusters.Key{clusters.KeyOf(c)} }

// record is a reconcile function's memory.
type record[K comparable] struct {
	mu   sync.Mutex
	keys []K
}

func (r *record[K]) reconcile(_ context.Context, k K) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k)
	return nil
}

func (r *record[K]) take() []K {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.keys
	r.keys = nil
	return taken
}

// start runs the loop. stop cancels it and returns what Run did.
func start[K comparable](ctx context.Context, l *loop.Loop[K]) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestAChangeQueuesTheKeysOfBothStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x"), configMap("b", "x"))
		inf := controllertest.Informer(t, source, nil)
		var done record[string]
		l := loop.New(clusters.Range{}, "test", 1, done.reconcile)
		loop.Watch(l, inf, func(c *corev1.ConfigMap) []string {
			return []string{clusters.KeyOf(c).Cluster.String() + c.Labels["group"]}
		})
		stop := start(t.Context(), l)
		got := done.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("began with %v, want all there is", got)
		}
		moved := configMap("a", "x")
		moved.Labels = map[string]string{"group": "2"}
		source.Set(moved)
		if got := done.take(); !slices.Equal(got, []string{"a", "a2"}) {
			t.Errorf("a change queued %v", got)
		}
		source.Delete(clusters.KeyOf(moved))
		if got := done.take(); !slices.Equal(got, []string{"a2"}) {
			t.Errorf("a deletion queued %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

func TestTheSweepLeavesOutWhatIsNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := configMap("a", "x")
		due.Labels = map[string]string{"due": "yes"}
		source := controllertest.NewSource(due, configMap("b", "x"))
		inf := controllertest.Informer(t, source, nil)
		var done record[clusters.Key]
		l := loop.New(clusters.Range{}, "test", 1, done.reconcile)
		loop.WatchDue(l, inf, keys, func(c *corev1.ConfigMap) bool { return c.Labels["due"] != "" })
		stop := start(t.Context(), l)
		if got := done.take(); len(got) != 1 || got[0].Cluster != "a" {
			t.Errorf("began with %v, want what is due", got)
		}
		changed := configMap("b", "x")
		changed.Labels = map[string]string{"new": "yes"}
		source.Set(changed)
		if got := done.take(); len(got) != 1 || got[0].Cluster != "b" {
			t.Errorf("a change queued %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsReconciledBeforeTheCachesAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := clusters.NewInformer[*corev1.ConfigMap](controllertest.NewSource(configMap("a", "x")), nil)
		var done record[clusters.Key]
		l := loop.New(clusters.Range{}, "test", 1, done.reconcile)
		loop.Watch(l, inf, keys)
		early := clusters.Key{Cluster: "c", Name: "early"}
		l.Add(early)
		stop := start(t.Context(), l)
		if got := done.take(); got != nil {
			t.Errorf("reconciled %v on an empty cache", got)
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers before the caches are synced", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- inf.Run(ctx) }()
		if got := done.take(); len(got) != 2 || !slices.Contains(got, early) {
			t.Errorf("reconciled %v", got)
		}
		cancel()
		<-ended
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunReturnsAfterItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x"))
		inf := controllertest.Informer(t, source, nil)
		release := make(chan struct{})
		l := loop.New(clusters.Range{}, "test", 3, func(context.Context, clusters.Key) error {
			<-release // does not look at its context
			return nil
		})
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Run returned while a worker worked")
		default:
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left while draining", n)
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestAPanicEndsTheLoopAndNotTheProcess(t *testing.T) {
	bad := configMap("a", "x")
	bad.Labels = map[string]string{"bad": ""}
	panics := func(c *corev1.ConfigMap) []clusters.Key {
		if _, ok := c.Labels["bad"]; ok {
			panic("boom")
		}
		return keys(c)
	}
	for name, c := range map[string]struct {
		object    *corev1.ConfigMap // there is at the beginning
		reconcile func(context.Context, clusters.Key) error
		keys      func(*corev1.ConfigMap) []clusters.Key
		where     string
	}{
		"in reconcile": {
			configMap("a", "x"), func(context.Context, clusters.Key) error { panic("boom") }, keys, "reconcile of a|default/x"},
		"in a handler": {
			configMap("a", "x"), func(context.Context, clusters.Key) error { return nil }, panics, "event handler"},
		"in the sweep": {
			bad, func(context.Context, clusters.Key) error { return nil }, panics, "sweep"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := controllertest.NewSource(c.object)
				inf := controllertest.Informer(t, source, nil)
				l := loop.New(clusters.Range{}, "test", 2, c.reconcile)
				loop.Watch(l, inf, c.keys)
				ended := make(chan error, 1)
				go func() { ended <- l.Run(t.Context()) }()
				synctest.Wait()
				source.Set(bad)
				err := <-ended
				p, ok := errors.AsType[*controllers.Panic](err)
				if !ok || p.Where != c.where || p.Value != "boom" || len(p.Stack) == 0 {
					t.Errorf("Run returned %v", err)
				}
				if n := inf.Handlers(); n != 0 {
					t.Errorf("%d handlers left", n)
				}
			})
		})
	}
}

// inRange returns a logical cluster of range k of n.
func inRange(k, n int) logicalcluster.Name {
	for i := 0; ; i++ {
		if name := logicalcluster.Name(fmt.Sprint("c", i)); clusters.RangeOf(name, n) == k {
			return name
		}
	}
}

// Each key is reconciled by the range of its cluster, whichever object queues it, and by no other.
func TestAKeyIsOfTheRangeOfItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := inRange(1, 3), inRange(2, 3)
		refers := configMap(a.String(), "refers")
		refers.Labels = map[string]string{"to": b.String()}
		source := controllertest.NewSource(refers, configMap(b.String(), "x"))
		inf := controllertest.Informer(t, source, nil)
		both := func(c *corev1.ConfigMap) (keys []logicalcluster.Name) {
			keys = append(keys, clusters.KeyOf(c).Cluster)
			if to := c.Labels["to"]; to != "" {
				keys = append(keys, logicalcluster.Name(to))
			}
			return keys
		}
		var done [3]record[logicalcluster.Name]
		var whole record[string]
		expect := func(when string, want ...[]logicalcluster.Name) {
			for k, names := range want {
				got := done[k].take()
				slices.Sort(got)
				if !slices.Equal(slices.Compact(got), names) {
					t.Errorf("%s, range %d has reconciled %v, want %v", when, k, got, names)
				}
			}
		}
		for k, name := range []logicalcluster.Name{clusters.SystemShards, a, b} {
			of := clusters.Range{Index: k, Of: 3}
			l := loop.New(of, "test", 1, done[k].reconcile)
			loop.Watch(l, inf, both)
			loop.FollowAll(l, inf, both)
			l.Add(b)
			l.AddAfter(a, 0)
			defer start(t.Context(), l)() //nolint:errcheck // it ends with the test
			w := loop.New(of, "test", 1, whole.reconcile)
			w.Add("of the shard, for " + name.String())
			defer start(t.Context(), w)() //nolint:errcheck // it ends with the test
		}
		expect("at first", nil, []logicalcluster.Name{a}, []logicalcluster.Name{b})
		if got := whole.take(); !slices.Equal(got, []string{"of the shard, for " + clusters.SystemShards.String()}) {
			t.Errorf("what is of the shard was reconciled: %v", got)
		}
		source.Set(refers)
		expect("after a change", nil, []logicalcluster.Name{a}, []logicalcluster.Name{b})
		source.Delete(clusters.KeyOf(refers))
		expect("after a deletion", nil, []logicalcluster.Name{a}, []logicalcluster.Name{b})
	})
}
