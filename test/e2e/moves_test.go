package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	moveObjects  = flag.Int("move-objects", 300, "how many objects a workspace has in TestAWorkspaceMovesWhileItIsUsedI16")
	moveWatchers = flag.Int("move-watchers", 30, "how many clients watch it")
	moveWriters  = flag.Int("move-writers", 4, "how many clients write, each 12 times a second")
)

// I16: a workspace moves from shard to shard while its users write and watch. No write fails. Each client that watches
// sees each change once, in order, and lists nothing again, and what it knows of an object is good for an update.
func TestAWorkspaceMovesWhileItIsUsedI16(t *testing.T) {
	t.Parallel()
	i := harness.InstallLong(t, "eu1", "us1")
	u := newUsed(t, i)
	stop := u.use(*moveWriters, *moveWatchers)
	var took []string
	for n := range 3 {
		to := u.another()
		out, err := i.TryRegent("cluster", "move", "root:used", "--to="+to)
		if err != nil {
			t.Fatalf("move %d: %v", n, err)
		}
		took = append(took, strings.TrimSpace(out))
		u.mustBeOn(to)
		u.awaitWrites(5 * *moveWriters) // its users continue there
	}
	stop()
	t.Logf("%s\n%d writes, the slowest took %v, 99%% of them %v", strings.Join(took, "\n"), len(u.latencies), u.slowest(1), u.slowest(0.99))
	if lists := u.lists.Load(); lists > 0 {
		t.Errorf("clients that watched had to list again %d times", lists)
	}
	u.mustHaveAll()
}

// used is a workspace, and its users.
type used struct {
	*testing.T
	i       *harness.Installation
	front   *harness.Front
	name    string
	cluster string
	kube    kubernetes.Interface

	lists atomic.Int64

	mu        sync.Mutex
	latencies []time.Duration
	// last is what was written last to each object, and known of which it is known that it was.
	last map[string]int
}

func newUsed(t *testing.T, i *harness.Installation) *used {
	t.Helper()
	return newUsedBy(t, i, i.StartFront(), "used")
}

// newUsedBy makes a workspace below root whose users come by a front.
func newUsedBy(t *testing.T, i *harness.Installation, front *harness.Front, name string) *used {
	t.Helper()
	u := &used{T: t, i: i, front: front, name: name, last: map[string]int{}}
	create(t, []*harness.Front{u.front}, "root", name)
	u.cluster, _ = awaitReady(t, []*harness.Front{u.front}, "root", name)
	u.kube = u.front.Kube("root:" + name)
	var creating sync.WaitGroup
	places := make(chan struct{}, 16)
	for n := range *moveObjects {
		places <- struct{}{}
		creating.Go(func() {
			defer func() { <-places }()
			_, err := u.kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("still-%d", n)}, Data: map[string]string{"n": strings.Repeat("x", 500)},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	return u
}

// shardsWith returns the shards that say that they have the workspace.
func (u *used) shardsWith() (all []string) {
	u.Helper()
	for _, m := range u.i.All() {
		status, _ := u.front.Get("/shards/" + m.Name + "/clusters/" + u.cluster + "/api/v1/namespaces/default")
		if status == http.StatusOK {
			all = append(all, m.Name)
		}
	}
	return all
}

// settled returns the shard that has the workspace, once that is one, and its Workspace says so.
func (u *used) settled() (at string) {
	u.Helper()
	harness.Eventually(u, "one shard has the workspace", func() bool {
		all := u.shardsWith()
		ws, err := u.front.Dynamic("root").Resource(harness.Workspaces).Get(u.Context(), u.name, metav1.GetOptions{})
		if len(all) != 1 || err != nil || clusters.ShardOf(ws, clusters.ShardLabel, "root") != all[0] {
			return false
		}
		at = all[0]
		return true
	})
	return at
}

func (u *used) on() string { return u.settled() }

func (u *used) mustBeOn(shard string) {
	u.Helper()
	if at := u.settled(); at != shard {
		u.Errorf("the workspace is on %s, and was moved to %s", at, shard)
	}
}

// another returns a shard on which the workspace is not.
func (u *used) another() string {
	u.Helper()
	at := u.settled()
	all := u.i.All()
	n := slices.IndexFunc(all, func(m *harness.ShardMember) bool { return m.Name == at })
	return all[(n+1)%len(all)].Name
}

// writes has clients write until stop is called. What fails may have been done.
func (u *used) writes(n int) (stop func()) {
	return whileWriting(u.Context(), n, func(w int) { u.write(fmt.Sprintf("written-%d", w), false) })
}

// whileWriting has some writers write, one after the other by each, until stop is called.
func whileWriting(ctx context.Context, writers int, write func(w int)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for ctx.Err() == nil {
				write(w)
				time.Sleep(calmWriter)
			}
		})
	}
	return func() { cancel(); writing.Wait() }
}

// write writes the next number into an object.
func (u *used) write(name string, mustSucceed bool) {
	u.mu.Lock()
	next := u.last[name] + 1
	u.mu.Unlock()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": strconv.Itoa(next)}}
	began := time.Now()
	api := u.kube.CoreV1().ConfigMaps("default")
	_, err := api.Update(u.Context(), obj, metav1.UpdateOptions{})
	if err != nil && strings.Contains(err.Error(), "not found") {
		_, err = api.Create(u.Context(), obj, metav1.CreateOptions{})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.latencies = append(u.latencies, time.Since(began))
	if err != nil && mustSucceed && u.Context().Err() == nil {
		u.Errorf("a write failed after %v: %v", time.Since(began).Round(time.Millisecond), err)
	}
	if err == nil {
		u.last[name] = next
	}
}

// awaitWrites waits until clients have written so often more.
func (u *used) awaitWrites(n int) {
	u.Helper()
	count := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.latencies)
	}
	before := count()
	harness.Eventually(u, "clients write", func() bool { return count() >= before+n })
}

func (u *used) slowest(part float64) time.Duration {
	slices.Sort(u.latencies)
	return u.latencies[min(int(float64(len(u.latencies))*part), len(u.latencies)-1)].Round(time.Millisecond)
}

// mustHaveAll checks that the workspace has all that was written.
func (u *used) mustHaveAll() {
	u.Helper()
	var list *corev1.ConfigMapList
	harness.Eventually(u, "the workspace is served", func() (ok bool) {
		var err error
		list, err = u.kube.CoreV1().ConfigMaps("default").List(u.Context(), metav1.ListOptions{})
		return err == nil
	})
	has, still := map[string]int{}, 0
	for _, one := range list.Items {
		if n, err := strconv.Atoi(one.Data["n"]); err == nil {
			has[one.Name] = n
		} else if strings.HasPrefix(one.Name, "still-") {
			still++
		}
	}
	if still != *moveObjects {
		u.Errorf("the workspace has %d of %d objects that nobody wrote", still, *moveObjects)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, n := range u.last {
		if has[name] < n {
			u.Errorf("%s was written with %d, and has %d", name, n, has[name])
		}
		u.last[name] = max(n, has[name])
	}
}

// use has clients write and watch until stop is called, which checks what they have seen.
func (u *used) use(writers, watchers int) (stop func()) {
	u.Helper()
	ctx, cancel := context.WithCancel(u.Context())
	var watching sync.WaitGroup
	for w := range writers {
		u.write(fmt.Sprintf("written-%d", w), true)
	}
	all := make([]*follower, watchers)
	for n := range all {
		all[n] = newFollower(u, n%2 == 1, all[0])
	}
	for n := range all {
		watching.Go(func() { all[n].follow(ctx) })
	}
	stopWriting := whileWriting(ctx, writers, func(w int) { u.write(fmt.Sprintf("written-%d", w), true) })
	return func() {
		u.Helper()
		stopWriting()
		want := maps.Clone(u.last)
		for n, f := range all {
			harness.Eventually(u, fmt.Sprintf("client %d has seen all", n), func() bool { return f.has(want) })
		}
		u.update(all[0])
		cancel()
		watching.Wait()
		for _, f := range all {
			for _, fault := range f.faults {
				u.Error(fault)
			}
		}
	}
}

// update writes objects by what a client has heard of them, as a controller does by its cache.
func (u *used) update(f *follower) {
	u.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range []string{"still-0", "written-0"} {
		obj := f.objectOf(name).DeepCopy()
		metav1.SetMetaDataLabel(&obj.ObjectMeta, "by", "cache")
		if _, err := u.kube.CoreV1().ConfigMaps("default").Update(u.Context(), obj, metav1.UpdateOptions{}); err != nil {
			u.Errorf("an update of %s by what a client knows of it: %v", name, err)
		}
	}
}

// follower is a client that lists once, and watches.
type follower struct {
	u      *used
	client *http.Client
	url    string
	// bookmarks: it asks for bookmarks.
	bookmarks bool
	version   string

	mu sync.Mutex
	// listed is what it has listed, which others may share, and objects what it has heard of since.
	listed, objects map[string]*corev1.ConfigMap
	faults          []error
}

// newFollower returns a client that has listed what like has, or by itself if that is nil.
func newFollower(u *used, bookmarks bool, like *follower) *follower {
	u.Helper()
	client, err := rest.HTTPClientFor(u.front.Config("root:" + u.name))
	if err != nil {
		u.Fatal(err)
	}
	f := &follower{u: u, client: client, url: u.front.URL + "/clusters/root:" + u.name + "/api/v1/namespaces/default/configmaps", bookmarks: bookmarks, objects: map[string]*corev1.ConfigMap{}}
	if like == nil {
		f.list(u.Context())
	} else {
		f.listed, f.version = like.listed, like.version
	}
	return f
}

// objectOf returns what it knows of an object. The caller holds mu.
func (f *follower) objectOf(name string) *corev1.ConfigMap {
	if obj, ok := f.objects[name]; ok {
		return obj
	}
	return f.listed[name]
}

func (f *follower) list(ctx context.Context) {
	resp, err := f.get(ctx, f.url)
	if err != nil {
		f.u.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	list := &corev1.ConfigMapList{}
	if err := json.NewDecoder(resp.Body).Decode(list); err != nil {
		f.u.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed, f.objects = map[string]*corev1.ConfigMap{}, map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		f.listed[list.Items[i].Name] = &list.Items[i]
	}
	f.version = list.ResourceVersion
}

func (f *follower) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return f.client.Do(req)
}

// follow watches until the context ends.
func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.watch(ctx); errors.Is(err, errAgain) {
			f.u.lists.Add(1)
			f.list(ctx)
		} else if err != nil && ctx.Err() == nil {
			f.fault(err)
			return
		}
	}
}

func (f *follower) fault(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, err)
}

// errAgain is of a watch whose client has to list again.
var errAgain = errors.New("list again")

func (f *follower) watch(ctx context.Context) error {
	resp, err := f.get(ctx, f.url+"?watch=true&resourceVersion="+f.version+"&allowWatchBookmarks="+strconv.FormatBool(f.bookmarks))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusGone {
		return errAgain
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && resp.StatusCode == http.StatusServiceUnavailable {
		f.u.Logf("a client is told to watch again in %d s", seconds) // as client-go does by itself
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(seconds) * time.Second):
		}
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("a watch from %s: %d %s", f.version, resp.StatusCode, body)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // it has ended: the client watches again
		}
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return errAgain
		}
		obj := &corev1.ConfigMap{}
		if err := json.Unmarshal(event.Object, obj); err != nil {
			return err
		}
		f.version = obj.ResourceVersion
		f.take(event.Type, obj)
	}
}

// take compares an event with what the client knows.
func (f *follower) take(kind string, obj *corev1.ConfigMap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.objectOf(obj.Name)
	if kind == "BOOKMARK" || was == nil && strings.HasPrefix(obj.Name, "kube-root-ca") {
		return
	}
	switch {
	case kind == "DELETED":
		f.faults = append(f.faults, fmt.Errorf("%s was deleted, as a client was told, and is there", obj.Name))
	case was == nil && kind != "ADDED", was != nil && kind != "MODIFIED":
		f.faults = append(f.faults, fmt.Errorf("%s: a client was told %s, and knew of it: %t", obj.Name, kind, was != nil))
	case was != nil && number(obj) != number(was)+1 && obj.Labels["by"] == "":
		f.faults = append(f.faults, fmt.Errorf("%s: a client was told of %d after %d", obj.Name, number(obj), number(was)))
	}
	f.objects[obj.Name] = obj
}

func number(obj *corev1.ConfigMap) int {
	n, err := strconv.Atoi(obj.Data["n"])
	if err != nil {
		return -1
	}
	return n
}

// has reports whether the client has seen what was written.
func (f *follower) has(want map[string]int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range want {
		if is := f.objectOf(name); is == nil || number(is) != n {
			return false
		}
	}
	return true
}
