package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/test/etcdtest"
)

// everything stands for all names of a brake.
const everything = "*"

// brake holds back what passes it under a name, until the name is let go.
type brake struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func (b *brake) hold(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if b.held[name] == nil {
			b.held[name] = make(chan struct{})
		}
	}
}

// letGo lets all names go, if none is given.
func (b *brake) letGo(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, held := range b.held {
		if len(names) == 0 || slices.Contains(names, name) {
			close(held)
			delete(b.held, name)
		}
	}
}

// pass returns when the name is not held; if one of the channels is closed before, with an error.
func (b *brake) pass(name string, ended, closed <-chan struct{}) error {
	for {
		b.mu.Lock()
		held := b.held[name]
		if held == nil {
			held = b.held[everything]
		}
		b.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-ended:
			return fmt.Errorf("was held back until its end: %s", name)
		case <-closed:
			return fmt.Errorf("was held back until it was closed: %s", name)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// source is a source that holds back what watches tell. Lists pass.
func (b *brake) source(next controllers.Source) controllers.Source { return slowSource{b, next} }

type slowSource struct {
	brake *brake
	next  controllers.Source
}

func (s slowSource) Objects(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return slowListWatch{s.next.Objects(resource), s.brake, resource.Resource}
}

func (s slowSource) Metadata(resource schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return slowListWatch{s.next.Metadata(resource), s.brake, "metadata of " + resource.Resource}
}

func (s slowSource) CustomObjects() cache.ListerWatcherWithContext {
	return slowListWatch{s.next.CustomObjects(), s.brake, "custom objects"}
}

type slowListWatch struct {
	cache.ListerWatcherWithContext
	brake *brake
	name  string
}

func (s slowListWatch) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	slow := watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		return event, s.brake.pass(s.name, ctx.Done(), stopped) == nil
	})
	return stoppable{slow, sync.OnceFunc(func() { close(stopped) })}, nil
}

// stoppable is a watch whose Stop does not wait for an event that is held back.
type stoppable struct {
	watch.Interface
	letGo func()
}

func (s stoppable) Stop() {
	s.letGo()
	s.Interface.Stop()
}

// term is what the controllers of a replica have asked for, since the beginning of its first term.
type term struct {
	// writes holds back writes, by the last two segments of their paths.
	writes brake

	mu       sync.Mutex
	answered []string
}

// transport takes the requests down, and holds each write to saying what it was decided on.
func (c *term) transport(t *testing.T) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		next = controllertest.Decided(next, func(err error) { t.Errorf("a write does not say what it was decided on: %v", err) })
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				name := path.Join(path.Base(path.Dir(req.URL.Path)), path.Base(req.URL.Path))
				if err := c.writes.pass(name, req.Context().Done(), nil); err != nil {
					return nil, err
				}
			}
			resp, err := next.RoundTrip(req)
			if err == nil {
				cluster, _ := clusters.From(req.Context())
				c.mu.Lock()
				defer c.mu.Unlock()
				c.answered = append(c.answered, fmt.Sprintf("%s %s%s: %d", req.Method, cluster, req.URL.Path, resp.StatusCode))
			}
			return resp, err
		})
	}
}

func (c *term) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = nil
}

func (c *term) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.answered)
}

// catalogued is a replica that runs the catalog's controllers.
type catalogued struct {
	*replica
	// late holds back what its informers learn, term what its controllers write.
	late brake
	term term
	// shard has the clients and informers of the process.
	shard controllers.Deps

	// controllers are how many the catalog has.
	controllers int
	mu          sync.Mutex
	// latest are the controllers of the last term to begin.
	latest map[string]controllers.Reporter
}

func startCatalogued(t *testing.T, root string, etcd storagebackend.TransportConfig, prepare ...func(*Server)) *catalogued {
	t.Helper()
	cfg := withController(t, config(t, root), nil)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcd
	return catalogue(t, cfg, prepare...)
}

// catalogue starts a replica that runs the catalog's controllers.
func catalogue(t *testing.T, cfg Config, prepare ...func(*Server)) *catalogued {
	t.Helper()
	c := &catalogued{latest: map[string]controllers.Reporter{}}
	c.late.held, c.term.writes.held = map[string]chan struct{}{}, map[string]chan struct{}{}
	cfg.informerSource, cfg.termTransport = c.late.source, c.term.transport(t)
	shard := make(chan controllers.Deps, 1)
	all := []controllers.Descriptor{{Name: "shard", Scope: controllers.EveryReplica, New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		shard <- deps
		return acting(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}}}
	registry, err := catalog.Registry()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range registry.Scoped(controllers.LeaderOnly, controllers.Electing) {
		construct := d.New
		d.New = func(ctx context.Context, deps controllers.Deps) (controllers.Controller, error) {
			out, err := construct(ctx, deps)
			if err == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.latest[d.Name] = out.(controllers.Reporter)
			}
			return out, err
		}
		all = append(all, d)
		c.controllers++
	}
	if cfg.Registry, err = controllers.NewRegistry(all...); err != nil {
		t.Fatal(err)
	}
	c.replica = startReplica(t, cfg, prepare...)
	t.Cleanup(func() {
		c.late.letGo()
		c.term.writes.letGo()
		if err := c.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	c.untilReady(t)
	c.shard = <-shard
	return c
}

// idle reports whether all controllers run, each has worked on something, and nothing is left but so many that are held
// back.
func (c *catalogued) idle(held int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := 0
	for name, r := range c.latest {
		health := r.Report()
		if pending += health.Pending; health.Returned == 0 && !mayIdle[name] {
			return false
		}
	}
	return pending == held && len(c.latest) == c.controllers
}

// mayIdle are controllers that may have nothing to do: one has something in an installation only, the others in new
// namespaces, and where there are aggregated roles or definitions.
var mayIdle = map[string]bool{"assignment": true, "serviceaccount": true, "aggregation": true, "definition": true}

// operator does what users of a shard do, through a replica.
type operator struct {
	*testing.T
	at *catalogued
}

// elect waits until the Lease has that holder, and renews for so long that it will not expire here; or gives it up, for
// nobody.
func (u *operator) elect(leases coordinationclient.LeaseInterface, cluster, holder string) {
	u.Helper()
	u.until("the Lease has its holder", func() bool {
		lease, err := leases.Get(in(u, cluster), "elected", metav1.GetOptions{})
		if err != nil || holder != "" && *lease.Spec.HolderIdentity != holder {
			return false
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, ptr.To[int32](3600)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_, err = leases.Update(in(u, cluster), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

func in(t *operator, cluster string) context.Context {
	return clusters.With(t.Context(), logicalcluster.Name(cluster))
}

// must returns what ends the test if an action failed. For one that returns nothing else than an error it is must(0,
// err).
func must[T any](out T, err error) func(*operator) T {
	return func(t *operator) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func (u *operator) until(what string, so func() bool) {
	u.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.Fatalf("in vain for a minute: %s\nasked for by controllers here:\n%s", what, strings.Join(u.at.term.requests(), "\n"))
		}
	}
}

func (u *operator) create(names ...string) {
	u.Helper()
	for _, name := range names {
		ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(u.at.shard.Clients.Workspaces.Create(in(u, "root"), ws, metav1.CreateOptions{}))(u)
	}
}

func (u *operator) delete(names ...string) {
	u.Helper()
	for _, name := range names {
		must(0, u.at.shard.Clients.Workspaces.Delete(in(u, "root"), name, metav1.DeleteOptions{}))(u)
	}
	for _, name := range names {
		u.until(name+" has gone", func() bool {
			_, err := u.at.shard.Clients.Workspaces.Get(in(u, "root"), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

func (u *operator) get(name string) *tenancyv1alpha1.Workspace {
	u.Helper()
	return must(u.at.shard.Clients.Workspaces.Get(in(u, "root"), name, metav1.GetOptions{}))(u)
}

// ready waits until a workspace is and returns its cluster.
func (u *operator) ready(name string) (cluster string) {
	u.Helper()
	u.until(name+" is Ready", func() bool {
		ws := u.get(name)
		cluster = ws.Spec.Cluster
		return ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	return cluster
}

// workspace returns what the replica's cache shows.
func (c *catalogued) workspace(name string) *tenancyv1alpha1.Workspace {
	ws, _ := c.shard.Informers.Workspaces.Get(clusters.Key{Cluster: clusters.Root, Name: name})
	return ws
}

// phase is the cluster's that the replica's cache shows; empty: it shows none.
func (c *catalogued) phase(cluster string) corev1alpha1.LogicalClusterPhaseType {
	lc, ok := c.shard.Informers.LogicalClusters.Get(clusters.Key{Cluster: logicalcluster.Name(cluster), Name: corev1alpha1.LogicalClusterName})
	if !ok {
		return ""
	}
	return lc.Status.Phase
}

func (c *catalogued) namespace(cluster, name string) *corev1.Namespace {
	ns, _ := c.shard.Informers.Namespaces.Get(clusters.Key{Cluster: logicalcluster.Name(cluster), Name: name})
	return ns
}

// A standby's caches may be behind what the leader has done, each by another span: here its watches are held back while
// the leader works, and then it has to lead. It must begin at once, and nothing that it does may rest on what the
// caches show and is not so any more.
func TestANewLeaderWorksAtOnceOnLateCachesAndUndoesNothing(t *testing.T) {
	root, store := t.TempDir(), etcdtest.Start(t)
	first := startCatalogued(t, root, store, inFirstFormat)
	u := &operator{T: t, at: first}
	u.until("root is Ready", func() bool { return first.phase("root") == corev1alpha1.LogicalClusterPhaseReady })
	second := startCatalogued(t, root, store, inFirstFormat)
	kube := first.shard.Clients.Kube.CoreV1()

	// What both know: a workspace with a namespace that terminates and waits for a finalizer, and two more
	// workspaces.
	u.create("stays", "doomed", "again")
	stays, doomed, again := u.ready("stays"), u.ready("doomed"), u.ready("again")
	old := must(kube.Namespaces().Create(in(u, stays), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "reused"}}, metav1.CreateOptions{}))(u)
	must(kube.ConfigMaps("reused").Create(in(u, stays), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/kept"}},
	}, metav1.CreateOptions{}))(u)
	must(0, kube.Namespaces().Delete(in(u, stays), "reused", metav1.DeleteOptions{}))(u)
	u.until("the second knows all that", func() bool {
		ns := second.namespace(stays, "reused")
		return ns != nil && ns.DeletionTimestamp != nil && second.phase(doomed) == "Ready" && second.phase(again) == "Ready" &&
			second.workspace("doomed").Status.Phase == "Ready" && second.workspace("again").Status.Phase == "Ready"
	})

	// One cache is ahead of the other: the workspace is Ready in one, its cluster is not yet in the other.
	first.term.writes.hold("cluster/status")
	u.create("half")
	u.until("the second knows half's cluster", func() bool { ws := second.workspace("half"); return ws != nil && second.phase(ws.Spec.Cluster) != "" })
	second.late.hold("logicalclusters")
	first.term.writes.letGo()
	half := u.ready("half")
	u.until("the second knows half Ready", func() bool { return second.workspace("half").Status.Phase == "Ready" })
	if phase := second.phase(half); phase != corev1alpha1.LogicalClusterPhaseScheduling {
		t.Fatalf("the second knows half's cluster %s, want it Scheduling", phase)
	}

	// One that the second knows without a cluster. The first gets to the other of them never.
	first.term.writes.hold("workspaces/unbound", "workspaces/pending")
	u.create("unbound", "pending")
	u.until("the second knows both", func() bool { return second.workspace("unbound") != nil && second.workspace("pending") != nil })
	second.late.hold("workspaces")
	first.term.writes.letGo("workspaces/unbound")
	unbound := u.ready("unbound")

	// Gone, and not so for the second, but for their namespaces. One comes again under its name.
	u.delete("doomed", "again")
	u.until("the second knows no namespaces of theirs", func() bool {
		return second.namespace(doomed, "default") == nil && second.namespace(again, "default") == nil
	})
	u.create("again")
	reborn := u.ready("again")

	// An owner that the second does not know, of what it does know.
	second.late.hold("metadata of secrets")
	owner := must(kube.Secrets("default").Create(in(u, stays), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{}))(u)
	must(kube.ConfigMaps("default").Create(in(u, stays), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID}},
	}}, metav1.CreateOptions{}))(u)
	u.until("the second knows what is owned", func() bool {
		_, ok := second.shard.Informers.Metadata[corev1.SchemeGroupVersion.WithResource("configmaps")].Get(
			clusters.Key{Cluster: logicalcluster.Name(stays), Namespace: "default", Name: "owned"})
		return ok
	})

	// A Lease that is free for the second, and has been given by election again.
	electing := first.shard.Clients.Kube
	candidates, leases := electing.CoordinationV1beta1().LeaseCandidates("default"), electing.CoordinationV1().Leases("default")
	must(candidates.Create(in(u, stays), &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: "client"},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: "elected", BinaryVersion: "1.37.0", EmulationVersion: "1.37.0",
			Strategy: coordinationv1.OldestEmulationVersion, RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}, metav1.CreateOptions{}))(u)
	u.elect(leases, stays, "client")
	first.term.writes.hold("leasecandidates/client")
	u.elect(leases, stays, "")
	u.until("the second knows it free", func() bool {
		lease, ok := second.shard.Informers.Leases.Get(clusters.Key{Cluster: logicalcluster.Name(stays), Namespace: "default", Name: "elected"})
		return ok && *lease.Spec.HolderIdentity == ""
	})
	second.late.hold("leases", "leasecandidates")
	first.term.writes.letGo("leasecandidates/client")
	u.until("the first has asked the candidate", func() bool {
		asked := must(candidates.Get(in(u, stays), "client", metav1.GetOptions{}))(u)
		if asked.Spec.PingTime == nil {
			return false
		}
		asked.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		must(candidates.Update(in(u, stays), asked, metav1.UpdateOptions{}))(u)
		return true
	})
	u.elect(leases, stays, "client")

	// A namespace that terminates for the second, has gone, and has come again with something in it.
	second.late.hold(everything)
	kept := must(kube.ConfigMaps("reused").Get(in(u, stays), "kept", metav1.GetOptions{}))(u)
	kept.Finalizers = nil
	must(kube.ConfigMaps("reused").Update(in(u, stays), kept, metav1.UpdateOptions{}))(u)
	u.until("the namespace has gone", func() bool {
		_, err := kube.Namespaces().Get(in(u, stays), "reused", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && first.namespace(stays, "reused") == nil
	})
	must(kube.Namespaces().Create(in(u, stays), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "reused"}}, metav1.CreateOptions{}))(u)
	must(kube.ConfigMaps("reused").Create(in(u, stays), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "precious"}}, metav1.CreateOptions{}))(u)
	u.create("newborn")
	newborn := u.ready("newborn")

	etcd := etcdtest.Client(t, store)
	u.until("the first has nothing left to do but pending", func() bool { return first.idle(1) })
	before := storedKeys(t, etcd)
	if err := first.admin(t).Post().AbsPath(routing.StepDownPath).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	// The second leads, and does what is to be done, while its watches are still held.
	u.at = second
	u.until("pending has a cluster", func() bool { return u.get("pending").Spec.Cluster != "" })
	pending := u.get("pending").Spec.Cluster
	for _, want := range []string{
		"PUT root/apis/tenancy.kcp.io/v1alpha1/workspaces/unbound: 409",
		"PUT " + half + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status: 409",
		"GET " + doomed + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster: 404",
		"GET " + again + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster: 404",
		"GET " + stays + "/api/v1/namespaces/default/secrets/owner: 200",
		"GET " + stays + "/api/v1/namespaces/reused: 200",
		"PUT " + stays + "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates/client: 409",
	} {
		u.until(want, func() bool { return slices.Contains(second.term.requests(), want) })
	}
	u.until("the second has nothing left to do", func() bool { return second.idle(0) })
	if ns, ws := second.namespace(stays, "reused"), second.workspace("unbound"); ns.UID != old.UID || ws.Spec.Cluster != "" || second.phase(doomed) != "Ready" {
		t.Errorf("the second's caches have got on: namespace %s, was %s; workspace bound to %q; deleted cluster %q", ns.UID, old.UID, ws.Spec.Cluster, second.phase(doomed))
	}
	after := storedKeys(t, etcd)
	for _, own := range []string{
		"/registry/tenancy.kcp.io/workspaces/root/pending", "/registry/core.kcp.io/logicalclusters/" + pending + "/cluster",
		"/registry/coordination.k8s.io/leases/system:admin/kube-system/regent-controllers",
	} {
		if after[own] == before[own] {
			t.Errorf("%s is as it was", own)
		}
		delete(before, own)
		delete(after, own)
	}
	// Each term leaves a record.
	records := "/registry/core/configmaps/system:admin/kube-system/" + history.Name + "-00"
	delete(before, records)
	delete(after, records)
	// How many logical clusters the second counts is what its caches show. It counts again when they have got on.
	delete(before, "/registry/core.kcp.io/shards/system:shards/root")
	delete(after, "/registry/core.kcp.io/shards/system:shards/root")
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if after[key] != before[key] {
			t.Errorf("the second has changed or deleted %s", key)
		}
		delete(after, key)
	}
	for key := range after {
		t.Errorf("the second has created %s", key)
	}

	// The watches go on, and all comes to what it should be.
	second.late.letGo()
	want := map[string]string{"stays": stays, "again": reborn, "half": half, "unbound": unbound, "pending": pending, "newborn": newborn}
	for name, cluster := range want {
		if got := u.ready(name); got != cluster {
			t.Errorf("%s has got cluster %s, had %s", name, got, cluster)
		}
	}
	u.until("the second knows all", func() bool {
		return len(second.shard.Informers.Workspaces.List(clusters.Root)) == len(want) &&
			len(second.shard.Informers.LogicalClusters.List(clusters.Wildcard)) == len(want)+1 && second.idle(0)
	})
	must(kube.ConfigMaps("reused").Get(in(u, stays), "precious", metav1.GetOptions{}))(u)
	must(kube.ConfigMaps("default").Get(in(u, stays), "owned", metav1.GetOptions{}))(u)
	u.delete(slices.Collect(maps.Keys(want))...)
	for key := range storedKeys(t, etcd) {
		for _, cluster := range want {
			if strings.Contains(key, "/"+cluster+"/") {
				t.Errorf("%s is left", key)
			}
		}
	}
}
