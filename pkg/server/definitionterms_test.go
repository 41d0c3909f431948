package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/test/etcdtest"
)

// fashion is what users of some clusters define and make, for a term or two.
type fashion struct {
	*operator
	user      dynamic.Interface
	endpoints rest.Interface
	clusters  []string
	watching  sync.WaitGroup
	watches   atomic.Int64
}

// changesOfDefinitions is how much the changes of a term take in watch caches, in bytes.
const changesOfDefinitions = 256 << 10

var definitionsGVR = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ofTerm is what is defined in a term. Its content is new in each. Names recur: for each group there ever was,
// upstream's metrics keep what was requested.
func ofTerm(n int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("g%d.example.com", n%20), Version: "v1", Resource: "widgets"}
}

// define defines it everywhere: alike in the first half of the clusters, differently in each of the others. Each gets
// objects, and is watched.
func (f *fashion) define(n int) {
	f.Helper()
	var all sync.WaitGroup
	for i, cluster := range f.clusters {
		says := fmt.Sprintf("%d of term %d", max(0, i-len(f.clusters)/2+1), n)
		all.Go(func() { f.defineIn(cluster, n, says) })
	}
	all.Wait()
}

func (f *fashion) defineIn(cluster string, n int, says string) {
	ctx, gvr := in(f.operator, cluster), ofTerm(n)
	definition := &unstructured.Unstructured{Object: fromYAML(fmt.Sprintf(`{
apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.%[2]s},
spec: {group: %[2]s, scope: Namespaced, names: {plural: %[1]s, kind: Widget}, versions: [{name: v1, served: true, storage: true,
  schema: {openAPIV3Schema: {type: object, description: %[3]s, properties: {spec: {type: object, properties: {size: {type: integer, default: 3}},
    x-kubernetes-validations: [{rule: self.size < 10}]}}}}}]}}`, gvr.Resource, gvr.Group, says))}
	if _, err := f.user.Resource(definitionsGVR).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		f.Errorf("define %s in %s: %v", gvr, cluster, err)
		return
	}
	objects := f.user.Resource(gvr).Namespace(aNamespace)
	for i := range 5 {
		object := &unstructured.Unstructured{Object: fromYAML(fmt.Sprintf("{apiVersion: %s, kind: Widget, metadata: {name: x%d}, spec: {}}", gvr.GroupVersion(), i))}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			_, err := objects.Create(ctx, object, metav1.CreateOptions{})
			if err == nil {
				break
			}
			if !errors.IsNotFound(err) || time.Now().After(deadline) { // it is not established yet
				f.Errorf("create a %s in %s: %v", gvr, cluster, err)
				return
			}
		}
	}
	f.watch(ctx, objects)
}

// describe asks each cluster what it has. What it answers is kept for a while, by what it is about: 256 documents.
func (f *fashion) describe(n int) {
	f.Helper()
	for _, cluster := range f.clusters {
		for _, path := range []string{"/openapi/v3/apis/" + ofTerm(n).Group + "/v1", "/apis"} {
			must(0, f.endpoints.Get().AbsPath(clusters.RequestPath(logicalcluster.Name(cluster))+path).Do(f.Context()).Error())(f.operator)
		}
	}
}

// watch watches until the server ends it, since the definition goes.
func (f *fashion) watch(ctx context.Context, objects dynamic.ResourceInterface) {
	watch, err := objects.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		f.Error(err)
		return
	}
	f.watches.Add(1)
	f.watching.Go(func() {
		defer f.watches.Add(-1)
		defer watch.Stop()
		for range watch.ResultChan() {
		}
	})
}

// drop deletes what was defined in a term, without waiting.
func (f *fashion) drop(n int) {
	f.Helper()
	for _, cluster := range f.clusters {
		gvr := ofTerm(n)
		must(0, f.user.Resource(definitionsGVR).Delete(in(f.operator, cluster), gvr.Resource+"."+gvr.Group, metav1.DeleteOptions{}))(f.operator)
	}
}

// over waits until nothing is left of any of it.
func (f *fashion) over() {
	f.Helper()
	informers := f.at.shard.Informers
	f.until("no definition, object or watch is left", func() bool {
		left := int(f.watches.Load())
		for _, cluster := range f.clusters {
			left += len(informers.Definitions.List(logicalcluster.Name(cluster))) + len(informers.CustomObjects.List(logicalcluster.Name(cluster)))
		}
		return left == 0
	})
	f.until("the controllers rest", f.at.rest)
}

func (f *fashion) footprint() footprint {
	f.Helper()
	f.at.term.forget()
	least := leastFootprint(f.T)
	least.handlers = f.at.shard.Informers.Definitions.Handlers() + f.at.shard.Informers.CustomObjects.Handlers()
	return least
}

// latestOf is the controller of the last term to begin.
func (c *catalogued) latestOf(name string) controllers.Reporter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest[name]
}

// rest reports whether no controller of the term has anything to do.
func (c *catalogued) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.latest {
		if health := r.Report(); health.Pending > 0 || health.Sweep.Running {
			return false
		}
	}
	return true
}

// I5 and I12: definitions and their objects come in each term, in several clusters, and go in the next one.
// (-terms=1000 is the long form. It compares terms whose watch caches are full; the short form allows for what its few
// terms put into them.)
func TestTermsLeaveNothingBehindOfDefinitions(t *testing.T) {
	const begin, every = 10, 50
	terms := *termsFlag
	long := terms > 500
	way := etcdtest.Start(t)
	cfg := withController(t, config(t, t.TempDir()), nil)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, way
	cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.RetryPeriod = 20*time.Second, 15*time.Second, 20*time.Millisecond
	c := catalogue(t, cfg)
	f := &fashion{operator: &operator{t, c}, user: dynamicOf(t, c.adminConfig(t, ""), fence.Token{}), endpoints: c.admin(t)}
	f.until("root is Ready", func() bool { return c.phase("root") == "Ready" })
	for _, name := range []string{"a", "b", "c", "d"} {
		f.create(name)
		f.clusters = append(f.clusters, f.ready(name))
	}

	var before footprint
	comparable := 0 // the term that before is of
	events := watchHistories(t)
	began := time.Now()
	for n := 1; ; n++ {
		f.define(n)
		if long || n <= begin { // what is kept of answers is full, or is not filled any more
			f.describe(n)
		}
		if n > 1 {
			f.drop(n - 1)
		}
		last := n >= terms && (!long || comparable > 0 && n-comparable >= 300)
		if n == begin || n%every == 0 || last {
			f.drop(n)
			f.over()
			now := f.footprint()
			t.Logf("%4d terms in %v, %d clusters: %v", n, time.Since(began).Round(time.Second), len(f.clusters), now)
			if last {
				allowed := 0
				if !long {
					allowed = (n - comparable) * changesOfDefinitions
				}
				check(t, before, now, allowed)
				break
			}
			since := events
			events = watchHistories(t)
			switch filling := growing(since, events); {
			case !long && n == begin:
				before, comparable = now, n
			case !long:
			case len(filling) > 0:
				t.Logf("%4d terms: the watch caches of %v are being filled", n, filling)
				comparable = 0
			case comparable == 0:
				before, comparable = now, n
			}
			if n > 3*terms {
				t.Fatal("the watch caches are never full")
			}
			f.define(n)
		}
		led := c.latestOf("definition")
		if err := f.endpoints.Post().AbsPath(routing.StepDownPath).Do(t.Context()).Error(); err != nil {
			t.Fatalf("step down from term %d: %v", n, err)
		}
		f.until(fmt.Sprintf("term %d begins", n+1), func() bool { return c.latestOf("definition") != led })
	}
	f.watching.Wait()
	left, err := etcdtest.Client(t, way).Get(t.Context(), "/registry/custom/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(left.Kvs) > 0 {
		t.Errorf("left in etcd: %v, %v", left, err)
	}
}
