package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func configMap(cluster, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        name,
			Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
		},
		Data: map[string]string{"value": value},
	}
}

func key(cluster, name string) clusters.Key {
	return clusters.Key{Cluster: logicalcluster.Name(cluster), Namespace: "default", Name: name}
}

// journal is a handler that remembers what it was told.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) handle(old, new *corev1.ConfigMap) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case old == nil:
		j.lines = append(j.lines, fmt.Sprintf("added %s %s", clusters.KeyOf(new), new.Data["value"]))
	case new == nil:
		j.lines = append(j.lines, fmt.Sprintf("deleted %s %s", clusters.KeyOf(old), old.Data["value"]))
	default:
		j.lines = append(j.lines, fmt.Sprintf("changed %s %s to %s", clusters.KeyOf(new), old.Data["value"], new.Data["value"]))
	}
}

// expect compares what came since the last call, when all goroutines of the bubble are idle.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("handler was told (-want +got):\n%s", diff)
	}
	j.lines = nil
}

func TestEqualNamesInTwoClustersStayApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "of a"))
		inf := controllertest.Informer(t, source, map[string]func(*corev1.ConfigMap) []string{
			"value": func(c *corev1.ConfigMap) []string { return []string{c.Data["value"]} },
			"key":   func(c *corev1.ConfigMap) []string { return []string{clusters.KeyOf(c).String()} },
		})
		var told journal
		defer inf.AddHandler(told.handle)()
		told.expect(t, "added a|default/x of a")

		source.Set(configMap("b", "x", "of b"))
		told.expect(t, "added b|default/x of b")
		for _, cluster := range []string{"a", "b"} {
			obj, ok := inf.Get(key(cluster, "x"))
			if !ok || obj.Data["value"] != "of "+cluster {
				t.Errorf("Get in %s: %v %v", cluster, obj, ok)
			}
			if objs := inf.List(logicalcluster.Name(cluster)); len(objs) != 1 || objs[0] != obj {
				t.Errorf("List of %s: %v", cluster, objs)
			}
			if objs := inf.ByIndex("key", key(cluster, "x").String()); len(objs) != 1 || objs[0] != obj {
				t.Errorf("ByIndex in %s: %v", cluster, objs)
			}
		}
		if objs := inf.List(clusters.Wildcard); len(objs) != 2 {
			t.Errorf("List of all clusters: %v", objs)
		}

		source.Set(configMap("b", "x", "of a"))
		told.expect(t, "changed b|default/x of b to of a")
		if objs := inf.ByIndex("value", "of a"); len(objs) != 2 {
			t.Errorf("ByIndex over clusters: %v", objs)
		}
		source.Delete(key("a", "x"))
		told.expect(t, "deleted a|default/x of a")
		if _, ok := inf.Get(key("a", "x")); ok {
			t.Error("a's object is still there")
		}
		if _, ok := inf.Get(key("b", "x")); !ok {
			t.Error("b's object went with a's")
		}
		if objs := inf.ByIndex("value", "of a"); len(objs) != 1 {
			t.Errorf("ByIndex after deletion: %v", objs)
		}
		if objs := inf.ByIndex("value", "of b"); len(objs) != 0 {
			t.Errorf("ByIndex of a former value: %v", objs)
		}
	})
}

func TestARelistTellsWhatTheWatchMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(
			configMap("a", "gone", "1"), configMap("b", "gone", "1"), configMap("a", "changed", "1"), configMap("a", "same", "1"))
		inf := controllertest.Informer(t, source, nil)
		var told journal
		defer inf.AddHandler(told.handle)()
		synctest.Wait()
		told.lines = nil

		source.Fail(errors.New("the server is away"))
		source.Delete(key("a", "gone"))
		source.Set(configMap("a", "changed", "2"))
		source.Set(configMap("a", "new", "1"))
		time.Sleep(time.Hour) // however long
		told.expect(t)
		if _, ok := inf.Get(key("a", "same")); !ok {
			t.Error("the cache was lost with the server")
		}

		source.Fail(nil)
		time.Sleep(10 * time.Second) // the back-off's cap and jitter
		synctest.Wait()
		slices.Sort(told.lines)
		told.expect(t, "added a|default/new 1", "changed a|default/changed 1 to 2", "deleted a|default/gone 1")

		source.Set(configMap("b", "gone", "2"))
		told.expect(t, "changed b|default/gone 1 to 2")
	})
}

func TestAnObjectCreatedAnewIsADeletionAndAnAddition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "1"))
		inf := controllertest.Informer(t, source, nil)
		var told journal
		defer inf.AddHandler(told.handle)()
		told.expect(t, "added a|default/x 1")

		source.Fail(errors.New("the server is away"))
		source.Delete(key("a", "x"))
		source.Set(configMap("a", "x", "2"))
		source.Fail(nil)
		time.Sleep(10 * time.Second)
		told.expect(t, "deleted a|default/x 1", "added a|default/x 2")
	})
}

func TestASlowHandlerDelaysNobodyAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource[*corev1.ConfigMap]()
		inf := controllertest.Informer(t, source, nil)
		var quick, slow journal
		release := make(chan struct{})
		defer inf.AddHandler(quick.handle)()
		defer inf.AddHandler(func(old, new *corev1.ConfigMap) {
			<-release
			slow.handle(old, new)
		})()
		want := []string{"added a|default/x 0"}
		source.Set(configMap("a", "x", "0"))
		for n := 1; n < 100; n++ {
			source.Set(configMap("a", "x", fmt.Sprint(n)))
			want = append(want, fmt.Sprintf("changed a|default/x %d to %d", n-1, n))
		}
		quick.expect(t, want...)
		slow.expect(t)
		close(release)
		slow.expect(t, want...)
	})
}

func TestAFollowerIsToldWhatChangesFromNowOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "0"))
		inf := controllertest.Informer(t, source, nil)
		var told journal
		remove := inf.Follow(clusters.Range{}, told.handle)
		told.expect(t)
		source.Set(configMap("a", "x", "1"))
		told.expect(t, "changed a|default/x 0 to 1")
		remove()
		source.Set(configMap("a", "x", "2"))
		told.expect(t)
	})
}

func TestTheLastChangesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "0"), configMap("a", "y", "0"))
		inf := controllertest.Informer(t, source, nil)
		source.Set(configMap("a", "x", "1"))
		source.Delete(key("a", "y"))
		source.Set(configMap("b", "z", "0"))
		synctest.Wait()
		var told journal
		inf.Recent(clusters.Range{}, told.handle)
		told.expect(t, "changed a|default/x 0 to 1", "deleted a|default/y 0", "added b|default/z 0")
		for n := range 3000 {
			source.Set(configMap("a", "x", fmt.Sprint(n)))
		}
		synctest.Wait()
		inf.Recent(clusters.Range{}, told.handle)
		if n := len(told.lines); n != 1024 || told.lines[n-1] != "changed a|default/x 2998 to 2999" || told.lines[0] != "changed a|default/x 1975 to 1976" {
			t.Errorf("%d changes, from %q to %q", n, told.lines[0], told.lines[n-1])
		}
		time.Sleep(2 * time.Minute)
		source.Set(configMap("a", "x", "late"))
		synctest.Wait()
		told.lines = nil
		inf.Recent(clusters.Range{}, told.handle)
		told.expect(t, "changed a|default/x 2999 to late")
	})
}

func TestPagesShowEachObjectThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objs []*corev1.ConfigMap
		for n := range 500 {
			objs = append(objs, configMap(fmt.Sprintf("c%d", n%50), fmt.Sprintf("x%d", n), ""))
		}
		source := controllertest.NewSource(objs...)
		inf := controllertest.Informer(t, source, nil)
		seen := map[clusters.Key]int{}
		var after clusters.Key
		for n := 0; ; n++ {
			page, next := inf.Page(clusters.Range{}, after, 7)
			for _, obj := range page {
				seen[clusters.KeyOf(obj)]++
			}
			if next == (clusters.Key{}) {
				break
			}
			after = next
			source.Delete(after) // the one that the next page begins behind
			source.Set(configMap(fmt.Sprintf("c%d", n), "added", ""))
			synctest.Wait()
		}
		for _, obj := range objs {
			if n := seen[clusters.KeyOf(obj)]; n != 1 {
				t.Errorf("%s was shown %d times", clusters.KeyOf(obj), n)
			}
		}
	})
}

// Each range sees its own objects, in pages, in the last changes and in what it follows, and all ranges together see
// each once.
func TestRangesShareTheObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5 // of which none ends where a slot does
		var objs []*corev1.ConfigMap
		for k := range 3000 {
			objs = append(objs, configMap(fmt.Sprintf("c%d", k%1000), fmt.Sprintf("x%d", k), ""))
		}
		source := controllertest.NewSource(objs...)
		inf := controllertest.Informer(t, source, nil)
		var told [n]journal
		for k := range n {
			defer inf.Follow(clusters.Range{Index: k, Of: n}, told[k].handle)()
		}
		want := map[int][]string{}
		for _, name := range []string{"c0", "c7", "c12", clusters.Root.String()} {
			source.Set(configMap(name, "new", "1"))
			k := clusters.RangeOf(logicalcluster.Name(name), n)
			want[k] = append(want[k], "added "+name+"|default/new 1")
		}
		synctest.Wait()
		seen := map[clusters.Key]int{}
		for k := range n {
			of := clusters.Range{Index: k, Of: n}
			for after, pages := (clusters.Key{}), 0; ; pages++ {
				page, next := inf.Page(of, after, 7)
				for _, obj := range page {
					if seen[clusters.KeyOf(obj)]++; !of.Has(clusters.KeyOf(obj).Cluster) {
						t.Errorf("range %d sees %s", k, clusters.KeyOf(obj))
					}
				}
				if len(page) > 7 {
					t.Errorf("a page has %d objects", len(page))
				}
				if after = next; next == (clusters.Key{}) {
					break
				}
			}
			told[k].expect(t, want[k]...)
			inf.Recent(of, told[k].handle)
			told[k].expect(t, want[k]...)
		}
		if len(seen) != len(objs)+4 {
			t.Errorf("%d objects were seen", len(seen))
		}
		for key, times := range seen {
			if times != 1 {
				t.Errorf("%s was seen %d times", key, times)
			}
		}
	})
}

func TestARemovedHandlerIsNotCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "0"), configMap("a", "y", "0"))
		inf := controllertest.Informer(t, source, nil)
		entered, release := make(chan struct{}), make(chan struct{})
		calls := 0
		remove := inf.AddHandler(func(_, _ *corev1.ConfigMap) {
			calls++
			entered <- struct{}{}
			<-release
		})
		<-entered
		removed := make(chan struct{})
		go func() {
			defer close(removed)
			remove()
		}()
		synctest.Wait()
		select {
		case <-removed:
			t.Error("remove returned while the handler ran")
		default:
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
		source.Set(configMap("a", "x", "1")) // the informer delivers while a removal waits
		close(release)
		<-removed
		source.Set(configMap("a", "x", "2"))
		synctest.Wait()
		remove() // again: nothing
		if calls != 1 {
			t.Errorf("handler was called %d times, want once", calls)
		}
	})
}

func TestHandlersMayBeAddedBeforeAndRemovedAfterTheInformerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := clusters.NewInformer[*corev1.ConfigMap](controllertest.NewSource(configMap("a", "x", "0")), nil)
		var told journal
		remove := inf.AddHandler(told.handle)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- inf.Run(ctx) }()
		told.expect(t, "added a|default/x 0")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		remove()
		var late journal
		remove = inf.AddHandler(late.handle)
		late.expect(t, "added a|default/x 0")
		remove()
		if err := inf.Run(t.Context()); err == nil {
			t.Error("Run twice returned nil")
		}
	})
}

func TestAThousandHandlersLeaveNothingBehind(t *testing.T) {
	var objs []*corev1.ConfigMap
	for n := range 1000 {
		objs = append(objs, configMap("a", fmt.Sprintf("x%d", n), "0"))
	}
	inf := controllertest.Informer(t, controllertest.NewSource(objs...), nil)
	measure := func() (goroutines int, heap uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	cycle := func(n int) {
		var removes []func()
		for range n {
			removes = append(removes, inf.AddHandler(func(_, _ *corev1.ConfigMap) {}))
		}
		if got := inf.Handlers(); got != n {
			t.Fatalf("%d handlers, want %d", got, n)
		}
		for _, remove := range removes {
			remove()
		}
	}
	cycle(10)
	goroutines, heap := measure()
	for range 100 {
		cycle(10)
	}
	goroutinesAfter, heapAfter := measure()
	t.Logf("goroutines %d -> %d, heap %d -> %d KiB", goroutines, goroutinesAfter, heap>>10, heapAfter>>10)
	if goroutinesAfter > goroutines {
		t.Errorf("goroutines grew from %d to %d", goroutines, goroutinesAfter)
	}
	if heapAfter > heap+heap/2+1<<20 { // one handler's replay of 1,000 objects is 32 KiB: a leak would be 32 MiB
		t.Errorf("heap grew from %d to %d bytes", heap, heapAfter)
	}
	if n := inf.Handlers(); n != 0 {
		t.Errorf("%d handlers left", n)
	}
}

// A replica that leads many ranges has a handler for each of them, controller and cache. Most wait all the time.
func TestHandlersThatWaitHaveNoGoroutine(t *testing.T) {
	inf := controllertest.Informer(t, controllertest.NewSource(configMap("a", "x", "0")), nil)
	before := runtime.NumGoroutine()
	for range 1000 {
		defer inf.Follow(clusters.Range{}, func(_, _ *corev1.ConfigMap) {})()
	}
	if after := runtime.NumGoroutine(); after > before+100 {
		t.Errorf("a thousand handlers that wait have %d goroutines", after-before)
	}
}

func TestHandlersComeAndGoWhileObjectsChange(t *testing.T) {
	source := controllertest.NewSource[*corev1.ConfigMap]()
	inf := controllertest.Informer(t, source, nil)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			cluster := fmt.Sprintf("c%d", worker)
			for n := range 200 {
				source.Set(configMap(cluster, "x", fmt.Sprint(n)))
				if n%10 == 9 {
					source.Delete(key(cluster, "x"))
				}
			}
			source.Set(configMap(cluster, "x", "last"))
		})
		all.Go(func() {
			for range 100 {
				// without a lock: calls are one after the other
				seen := map[clusters.Key]*corev1.ConfigMap{}
				remove := inf.AddHandler(func(old, new *corev1.ConfigMap) {
					if old != nil {
						if known := seen[clusters.KeyOf(old)]; known == nil || known.UID != old.UID {
							t.Errorf("told that %s changed, which it was not told before", clusters.KeyOf(old))
						}
						delete(seen, clusters.KeyOf(old))
					}
					if new != nil {
						seen[clusters.KeyOf(new)] = new
					}
				})
				inf.List(clusters.Wildcard)
				remove()
			}
		})
	}
	all.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for worker := range 4 {
		for {
			if obj, ok := inf.Get(key(fmt.Sprintf("c%d", worker), "x")); ok && obj.Data["value"] == "last" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the informer never saw the last change")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestAnObjectWithoutClusterIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stray := configMap("", "x", "stray")
		stray.Annotations = nil
		source := controllertest.NewSource(stray, configMap("a", "x", "of a"))
		inf := controllertest.Informer(t, source, nil)
		source.Set(stray)
		synctest.Wait()
		if objs := inf.List(clusters.Wildcard); len(objs) != 1 || objs[0].Data["value"] != "of a" {
			t.Errorf("cache holds %v", objs)
		}
	})
}

func TestAWatchResumesFromABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := make(chan *watch.FakeWatcher, 2)
		var versions []string
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				versions = append(versions, opts.ResourceVersion)
				if opts.SendInitialEvents != nil {
					t.Error("the informer streams its list: equal names of two clusters would collapse")
				}
				w := watch.NewFakeWithOptions(watch.FakeOptions{})
				watches <- w
				return w, nil
			},
		}
		inf := clusters.NewInformer[*corev1.ConfigMap](lw, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- inf.Run(ctx) }()
		first := <-watches
		first.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
		first.Stop()
		second := <-watches
		added := configMap("a", "x", "1")
		added.ResourceVersion, added.UID = "8", types.UID("u")
		second.Add(added)
		synctest.Wait()
		if diff := cmp.Diff([]string{"5", "7"}, versions); diff != "" {
			t.Errorf("watches began at (-want +got):\n%s", diff)
		}
		if objs := inf.List(clusters.Wildcard); len(objs) != 1 {
			t.Errorf("cache holds %v", objs)
		}
		cancel()
		<-ended
	})
}

func TestRunReturnsAfterItsListHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listing, release := make(chan struct{}), make(chan struct{})
		inf := clusters.NewInformer[*corev1.ConfigMap](&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
				close(listing)
				<-release // a client that does not look at its context
				return nil, errors.New("late")
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, errors.New("not reached")
			},
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- inf.Run(ctx) }()
		<-listing
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run returned while its list was under way")
		default:
		}
		close(release)
		<-ended
	})
}

func TestAnUnknownIndexPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a misspelt index found nothing, silently")
		}
	}()
	clusters.NewInformer[*corev1.ConfigMap](controllertest.NewSource[*corev1.ConfigMap](), nil).ByIndex("nmae", "x")
}

func TestListWatchesReadAllClusters(t *testing.T) {
	paths := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		kind := "ConfigMapList"
		if r.URL.Query().Get("watch") != "" {
			return
		}
		version := "v1"
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
		}
		_, _ = io.WriteString(w, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, version))
	}))
	defer server.Close()
	httpClient := &http.Client{Transport: clusters.Transport(http.DefaultTransport)}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	config := &rest.Config{Host: server.URL}
	config.ContentType = "application/json"
	kube, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	for name, lw := range map[string]cache.ListerWatcherWithContext{
		"typed":    clusters.ListWatch(kube.CoreV1().ConfigMaps(metav1.NamespaceAll)),
		"metadata": clusters.ListWatch(meta.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))),
	} {
		list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%s: list: %v", name, err)
		}
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatalf("%s: watch: %v", name, err)
		}
		w.Stop()
		for range w.ResultChan() {
		}
		for _, verb := range []string{"list", "watch"} {
			if path := <-paths; path != "/clusters/*/api/v1/configmaps" {
				t.Errorf("%s: %s read %s (%T)", name, verb, path, list)
			}
		}
	}
}
