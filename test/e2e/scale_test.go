package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/regent-project/regent/test/e2e/harness"
)

var manyFlag = flag.Int("many", 100, "how many workspaces TestManyWorkspacesComeAndGoWithoutATrace makes; make long-workspaces: 1000")

// It is slow because it is work, a hundred seconds of CPU for a thousand: each workspace is made, becomes ready through
// several writes, and is deleted with all that is in it. It does not run beside other scenarios, which would wait for
// their share.
func TestManyWorkspacesComeAndGoWithoutATrace(t *testing.T) {
	const clients = 16
	total := *manyFlag
	page := total/7 + 1 // the last one is shorter
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Timings = harness.Default
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	leader, _ := harness.Leader(t, replicas...)
	leader.WaitRoot()
	store := etcd.Client(t)
	workspaces := []dynamic.ResourceInterface{replicas[0].Dynamic("root").Resource(harness.Workspaces), replicas[1].Dynamic("root").Resource(harness.Workspaces)}

	// Each replica has a watcher from the beginning.
	var watchers []*workspaceWatch
	for _, r := range replicas {
		watchers = append(watchers, watchWorkspaces(t, r))
	}
	began := time.Now()
	atOnce(t, clients, total, func(ctx context.Context, i int) error {
		_, err := workspaces[i%2].Create(ctx, harness.NewWorkspace(workspaceName(i)), metav1.CreateOptions{})
		return err
	})
	created := time.Since(began)
	for _, w := range watchers {
		w.waitFor(t, "all are Ready", func(ready map[string]string) bool { return len(ready) == total })
	}
	took := time.Since(began)
	t.Logf("%d workspaces created in %v, Ready in %v: %.0f workspaces/s", total, created.Round(time.Millisecond), took.Round(time.Millisecond), float64(total)/took.Seconds())

	for _, w := range workspaces {
		names := listByPages(t, w, int64(page))
		if len(names) != total {
			t.Errorf("%d workspaces by pages of %d, want %d", len(names), page, total)
		}
	}
	// Each has a cluster of its own, and that answers.
	clustersOf := map[string]string{}
	for name, cluster := range watchers[0].snapshot() {
		if other, twice := clustersOf[cluster]; twice || cluster == "" {
			t.Errorf("%s and %s share cluster %q", name, other, cluster)
		}
		clustersOf[cluster] = name
	}
	for i := 0; i < total; i += max(total/20, 1) {
		replicas[i%2].WaitWorkspace(workspaceName(i))
	}

	began = time.Now()
	atOnce(t, clients, total, func(ctx context.Context, i int) error {
		return workspaces[i%2].Delete(ctx, workspaceName(i), metav1.DeleteOptions{})
	})
	for _, w := range watchers {
		w.waitFor(t, "all are gone", func(ready map[string]string) bool { return len(ready) == 0 })
	}
	took = time.Since(began)
	t.Logf("deleted in %v: %.0f workspaces/s", took.Round(time.Millisecond), float64(total)/took.Seconds())

	for _, key := range keys(t, store, shard.Prefix) {
		for _, part := range strings.Split(key, "/") {
			if name := clustersOf[part]; name != "" || strings.HasPrefix(part, workspacePrefix) {
				t.Errorf("etcd still holds %s, of workspace %q", key, name)
			}
		}
	}
	for _, r := range replicas {
		if terms := r.Terms(); len(terms) > 1 || len(terms) == 1 && terms[0].Reason != "" {
			t.Errorf("terms of %s: %v", r.Name(), terms)
		}
	}
}

// workspacePrefix begins the names.
const workspacePrefix = "many-"

func workspaceName(i int) string { return fmt.Sprintf("%s%d", workspacePrefix, i) }

// atOnce calls do for 0 to total-1, from so many clients.
func atOnce(t *testing.T, clients, total int, do func(ctx context.Context, i int) error) {
	t.Helper()
	var working sync.WaitGroup
	for c := range clients {
		working.Go(func() {
			for i := c; i < total; i += clients {
				if err := do(t.Context(), i); err != nil {
					t.Errorf("workspace %d: %v", i, err)
				}
			}
		})
	}
	working.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// keys returns all keys in etcd under a prefix.
func keys(t *testing.T, store *clientv3.Client, prefix string) (all []string) {
	t.Helper()
	resp, err := store.Get(t.Context(), prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		all = append(all, string(kv.Key))
	}
	if len(all) == 0 {
		t.Fatalf("no keys under %s", prefix)
	}
	return all
}

func listByPages(t *testing.T, workspaces dynamic.ResourceInterface, page int64) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	opts := metav1.ListOptions{Limit: page}
	for {
		list, err := workspaces.List(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(list.Items)) > page {
			t.Errorf("a page of %d, asked for %d", len(list.Items), page)
		}
		for _, w := range list.Items {
			names[w.GetName()] = true
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return names
		}
	}
}

// workspaceWatch follows root's workspaces, and knows the cluster of each that is Ready. It goes on where it was when
// the server ends a watch, which upstream's watch cache does to a client that reads too slowly.
type workspaceWatch struct {
	mu    sync.Mutex
	ready map[string]string
	fault string
}

// watchWorkspaces follows all workspaces with a RetryWatcher: the watch cache cuts off a watch whose reader is slow
// (apiserver_terminated_watchers_total).
func watchWorkspaces(t *testing.T, r *harness.Replica) *workspaceWatch {
	t.Helper()
	workspaces := r.Dynamic("root").Resource(harness.Workspaces)
	list, err := workspaces.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: workspaces.Watch})
	if err != nil {
		t.Fatal(err)
	}
	w := &workspaceWatch{ready: map[string]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			w.apply(e)
		}
		w.apply(watch.Event{Type: watch.Error})
	}()
	t.Cleanup(func() {
		events.Stop()
		<-done
	})
	return w
}

func (w *workspaceWatch) apply(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := e.Object.(*unstructured.Unstructured)
	switch {
	case !ok || e.Type == watch.Error:
		w.fault = fmt.Sprintf("the watch has ended: %v", e.Object)
	case e.Type == watch.Deleted:
		delete(w.ready, object.GetName())
	default:
		if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase == "Ready" {
			w.ready[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "cluster")
		}
	}
}

func (w *workspaceWatch) snapshot() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ready)
}

func (w *workspaceWatch) waitFor(t *testing.T, what string, so func(ready map[string]string) bool) {
	t.Helper()
	harness.EventuallyIn(t, 3*harness.Patience, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		return so(w.ready)
	})
}
