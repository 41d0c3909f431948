package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// epochOfRoot is that of logical cluster root in an epochsWorld.
const epochOfRoot = 7

// epochsWorld is a world in which logical cluster root has come from elsewhere, and no other one has.
func epochsWorld(t *testing.T) *world {
	t.Helper()
	w, _ := changingEpochs(t, epochOfRoot)
	return w
}

// changingEpochs is a world in which logical cluster root has an epoch, and may get another one.
func changingEpochs(t *testing.T, epoch int64) (_ *world, change func(epoch int64, change storage.Change)) {
	t.Helper()
	w := newWorld(t, etcdtest.Start(t), false, nil)
	awaitCache(t, w.objects)
	var now atomic.Int64
	now.Store(epoch)
	w.client.ServeEpochs(storage.Epochs{
		Of: func(_ context.Context, cluster logicalcluster.Name) (int64, error) {
			switch cluster {
			case "root":
				return now.Load(), nil
			case "unknown":
				return 0, errors.New("nobody knows")
			}
			return 0, nil
		},
		Resume: func(logicalcluster.Name) storage.Resume { return storage.Resume{} },
		Await:  func(ctx context.Context) error { return context.Cause(ctx) },
		Follow: func(is func(logicalcluster.Name, int64, storage.Change)) (stop func()) {
			change = func(epoch int64, what storage.Change) {
				now.Store(epoch)
				is("root", epoch, what)
			}
			return nil
		},
	})
	return w, change
}

// awaitCache waits until a watch cache has begun: until then watches, and some lists, are refused.
func awaitCache(t *testing.T, of upstream.Interface) {
	t.Helper()
	isReady := func(context.Context) (bool, error) { return of.ReadinessCheck() == nil, nil }
	if err := wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, isReady); err != nil {
		t.Fatal(err)
	}
}

// A client that watches a logical cluster while it goes and comes back begins anew: versions of the two do not mix.
func TestAWatchEndsWithTheEpochOfItsCluster(t *testing.T) {
	for before, after := range map[int64]int64{0: epochOfRoot, epochOfRoot: epochOfRoot + 1, epochOfRoot + 1: epochOfRoot + 1} {
		w, change := changingEpochs(t, before)
		watches := func(ctx context.Context) watch.Interface {
			from, err := w.objects.Watch(ctx, "/core/configmaps", upstream.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: upstream.Everything})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(from.Stop)
			return from
		}
		ends, other, own := watches(w.admin), watches(clusters.With(t.Context(), "other")), watches(context.WithValue(w.admin, ownKey{}, true))
		stopped := watches(w.admin)
		stopped.Stop()
		change(before, storage.Unchanged) // which is no other one
		if err := w.create(w.admin); err != nil {
			t.Fatal(err)
		}
		if event, ok := <-ends.ResultChan(); !ok || event.Type != watch.Added {
			t.Fatalf("%+v", event)
		}
		what := storage.Unchanged
		if before == after { // it may have come in the same epoch
			what = storage.HasCome
		}
		change(after, what)
		if event, ok := <-ends.ResultChan(); ok {
			t.Errorf("it goes on with %+v", event)
		}
		if err := w.create(clusters.With(t.Context(), "other")); err != nil {
			t.Fatal(err)
		}
		for what, from := range map[string]watch.Interface{"another cluster's": other, "the process's own": own} {
			if event, ok := <-from.ResultChan(); !ok || event.Type != watch.Added {
				t.Errorf("%s: %+v", what, event)
			}
		}
		if left := w.client.OpenWatches(); left != 1 { // the other cluster's
			ends.Stop()
			if left = w.client.OpenWatches(); left != 1 {
				t.Errorf("%d watches are counted as open", left)
			}
		}
	}
}

func versionIn(epoch, revision int64) string {
	if revision == 0 {
		return "0"
	}
	return strconv.FormatInt(epoch<<40|revision, 10)
}

func revisionIn(t testing.TB, version string) (epoch, revision int64) {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n >> 40, n & (1<<40 - 1)
}

// isShown fails unless a version is of root's epoch, and of the object as it is stored. It returns the revision.
func (w *world) isShown(what, version string) int64 {
	w.t.Helper()
	epoch, revision := revisionIn(w.t, version)
	if epoch != epochOfRoot {
		w.t.Errorf("%s: version %s is of epoch %d", what, version, epoch)
	}
	own := &corev1.ConfigMap{}
	err := w.objects.Get(context.WithValue(w.admin, ownKey{}, true), key, upstream.GetOptions{}, own)
	if err == nil && own.ResourceVersion != fmt.Sprint(revision) {
		w.t.Errorf("%s: version %s, and what is stored has revision %s", what, version, own.ResourceVersion)
	}
	return revision
}

func settingTo(value string) upstream.UpdateFunc {
	return upstream.SimpleUpdate(func(in runtime.Object) (runtime.Object, error) {
		in.(*corev1.ConfigMap).Data = map[string]string{"value": value}
		return in, nil
	})
}

// Whatever a client does in a logical cluster that has come, it sees one kind of versions, and what it has seen is good
// to go on with.
func TestClientsSeeTheEpochInVersions(t *testing.T) {
	w := epochsWorld(t)
	out := &corev1.ConfigMap{}
	if err := w.objects.Create(w.admin, key, object(), out, 0); err != nil {
		t.Fatal(err)
	}
	created := w.isShown("create", out.ResourceVersion)
	from, err := w.objects.Watch(w.admin, "/core/configmaps/default", upstream.ListOptions{ResourceVersion: out.ResourceVersion, Recursive: true, Predicate: upstream.Everything})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Stop()
	// an update is told the version that its client knows, and may require it
	var seen string
	var res uint64
	known := out.ResourceVersion
	err = w.objects.GuaranteedUpdate(w.admin, key, out, false, &upstream.Preconditions{ResourceVersion: &known}, func(in runtime.Object, r upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		seen, res = in.(*corev1.ConfigMap).ResourceVersion, r.ResourceVersion
		return settingTo("1")(in, r)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if seen != versionIn(epochOfRoot, created) || fmt.Sprint(res) != seen {
		t.Errorf("an update is told %q and %d, and what is there has version %s", seen, res, versionIn(epochOfRoot, created))
	}
	updated := w.isShown("update", out.ResourceVersion)
	if event := <-from.ResultChan(); event.Type != watch.Modified || event.Object.(*corev1.ConfigMap).ResourceVersion != out.ResourceVersion {
		t.Errorf("a watch from the creation on sees %s %+v", event.Type, event.Object)
	}
	for _, version := range []string{"", "0", versionIn(epochOfRoot, created), out.ResourceVersion} {
		got, list := &corev1.ConfigMap{}, &corev1.ConfigMapList{}
		if err := w.objects.Get(w.admin, key, upstream.GetOptions{ResourceVersion: version}, got); err != nil || w.isShown("get", got.ResourceVersion) != updated {
			t.Errorf("get at version %q: %v %+v", version, err, got)
		}
		err := w.objects.GetList(w.admin, "/core/configmaps/default", upstream.ListOptions{ResourceVersion: version, Recursive: true, Predicate: upstream.Everything}, list)
		if err != nil || len(list.Items) != 1 || w.isShown("list", list.Items[0].ResourceVersion) != updated {
			t.Errorf("list at version %q: %v %+v", version, err, list)
		}
		if epoch, _ := revisionIn(t, list.ResourceVersion); epoch != epochOfRoot {
			t.Errorf("a list has version %s", list.ResourceVersion)
		}
	}
	exact := &corev1.ConfigMapList{}
	err = w.objects.GetList(w.admin, "/core/configmaps/default", upstream.ListOptions{ResourceVersion: versionIn(epochOfRoot, created), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Recursive: true, Predicate: upstream.Everything}, exact)
	if err != nil || len(exact.Items) != 1 || exact.Items[0].ResourceVersion != versionIn(epochOfRoot, created) {
		t.Errorf("a list at the creation: %v %+v", err, exact)
	}
	var judged string
	validate := func(_ context.Context, obj runtime.Object) error {
		judged = obj.(*corev1.ConfigMap).ResourceVersion
		return nil
	}
	now := out.ResourceVersion
	if err := w.objects.Delete(w.admin, key, out, &upstream.Preconditions{ResourceVersion: &now}, validate, nil, upstream.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if epoch, _ := revisionIn(t, out.ResourceVersion); epoch != epochOfRoot || judged != now {
		t.Errorf("deleted as version %s, judged as %s", out.ResourceVersion, judged)
	}
	if event := <-from.ResultChan(); event.Type != watch.Deleted || event.Object.(*corev1.ConfigMap).ResourceVersion != out.ResourceVersion {
		t.Errorf("a watch sees %s %+v, and the deletion was answered with %s", event.Type, event.Object, out.ResourceVersion)
	}
}

// What a client knows from before, or from another shard, is older than all that is here: it conflicts, and the client
// lists again. It is never taken for a revision of this etcd.
func TestAVersionOfAnotherEpochIsNoRevision(t *testing.T) {
	w := epochsWorld(t)
	if err := w.create(w.admin); err != nil {
		t.Fatal(err)
	}
	own := &corev1.ConfigMap{}
	if err := w.objects.Get(context.WithValue(w.admin, ownKey{}, true), key, upstream.GetOptions{}, own); err != nil {
		t.Fatal(err)
	}
	_, revision := revisionIn(t, own.ResourceVersion)
	for name, version := range map[string]string{"where it was made": versionIn(0, revision), "an earlier epoch": versionIn(epochOfRoot-1, revision)} {
		out, list := &corev1.ConfigMap{}, &corev1.ConfigMapList{}
		at := upstream.ListOptions{ResourceVersion: version, Recursive: true, Predicate: upstream.Everything}
		if err := w.objects.GuaranteedUpdate(w.admin, key, out, false, &upstream.Preconditions{ResourceVersion: &version}, settingTo(name), nil); !upstream.IsInvalidObj(err) {
			t.Errorf("%s: update: %v", name, err)
		}
		if err := w.objects.Delete(w.admin, key, out, &upstream.Preconditions{ResourceVersion: &version}, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{}); !upstream.IsInvalidObj(err) {
			t.Errorf("%s: delete: %v", name, err)
		}
		if from, err := w.objects.Watch(w.admin, "/core/configmaps/default", at); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: watch: %v, %v", name, from, err)
		}
		if err := w.objects.Get(w.admin, key, upstream.GetOptions{ResourceVersion: version}, out); err != nil {
			t.Errorf("%s: get: %v", name, err)
		}
		if err := w.objects.GetList(w.admin, "/core/configmaps/default", at, list); err != nil || len(list.Items) != 1 {
			t.Errorf("%s: list: %v", name, err)
		}
		at.ResourceVersionMatch = metav1.ResourceVersionMatchExact
		if err := w.objects.GetList(w.admin, "/core/configmaps/default", at, list); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: list at exactly that: %v", name, err)
		}
		sends := true
		at = upstream.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: &sends, Recursive: true, Predicate: upstream.Everything}
		from, err := w.objects.Watch(w.admin, "/core/configmaps/default", at)
		if err != nil {
			t.Errorf("%s: a watch that begins with all: %v", name, err)
			continue
		}
		if event := <-from.ResultChan(); event.Type != watch.Added {
			t.Errorf("%s: a watch that begins with all sees %+v", name, event)
		}
		from.Stop()
	}
	later := versionIn(epochOfRoot+1, revision)
	if _, err := w.objects.Watch(w.admin, "/core/configmaps/default", upstream.ListOptions{ResourceVersion: later, Predicate: upstream.Everything}); !upstream.IsTooLargeResourceVersion(err) {
		t.Errorf("a version that this replica does not know yet: %v", err)
	}
	if err := w.objects.Get(clusters.With(t.Context(), "unknown"), key, upstream.GetOptions{}, own); err == nil {
		t.Error("something is shown of a logical cluster whose epoch is not known")
	}
}

func TestPagesOfAListAreOfOneEpoch(t *testing.T) {
	w := epochsWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		obj := object()
		obj.Name = name
		if err := w.objects.Create(w.admin, "/core/configmaps/default/"+name, obj, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	pages := upstream.ListOptions{Recursive: true, Predicate: upstream.SelectionPredicate{Label: labels.Everything(), Field: upstream.Everything.Field, GetAttrs: upstream.DefaultNamespaceScopedAttr, Limit: 2}}
	list := &corev1.ConfigMapList{}
	if err := w.objects.GetList(w.admin, "/core/configmaps/default", pages, list); err != nil || list.Continue == "" {
		t.Fatal(list, err)
	}
	token := list.Continue
	pages.Predicate.Continue = token
	list = &corev1.ConfigMapList{}
	if err := w.objects.GetList(w.admin, "/core/configmaps/default", pages, list); err != nil || len(list.Items) != 1 {
		t.Errorf("the next page: %v %+v", err, list)
	}
	for _, other := range []string{token[2:], "6." + token[2:]} {
		pages.Predicate.Continue = other
		if err := w.objects.GetList(w.admin, "/core/configmaps/default", pages, list); !apierrors.IsResourceExpired(err) {
			t.Errorf("a token of another epoch: %v", err)
		}
	}
}

// Over all logical clusters each object has the version that it has in its own, and the list a revision. A watch goes
// on from either.
func TestOverAllClustersEachObjectHasItsVersion(t *testing.T) {
	w := epochsWorld(t)
	all := clusters.With(t.Context(), clusters.Wildcard)
	for _, cluster := range []logicalcluster.Name{"root", "other"} {
		if err := w.create(clusters.With(t.Context(), cluster)); err != nil {
			t.Fatal(err)
		}
	}
	list := &corev1.ConfigMapList{}
	if err := w.objects.GetList(all, "/core/configmaps", upstream.ListOptions{Recursive: true, Predicate: upstream.Everything}, list); err != nil || len(list.Items) != 2 {
		t.Fatal(list, err)
	}
	if epoch, _ := revisionIn(t, list.ResourceVersion); epoch != 0 {
		t.Errorf("the list has version %s", list.ResourceVersion)
	}
	versions := map[logicalcluster.Name]string{}
	for _, item := range list.Items {
		cluster := logicalcluster.From(&item)
		versions[cluster] = item.ResourceVersion
		if epoch, _ := revisionIn(t, item.ResourceVersion); epoch != map[logicalcluster.Name]int64{"root": epochOfRoot}[cluster] {
			t.Errorf("what %s has has version %s", cluster, item.ResourceVersion)
		}
	}
	watches := map[string]watch.Interface{}
	// "other" is the later one
	for version, want := range map[string]int{versions["root"]: 1, versions["other"]: 0, list.ResourceVersion: 0, "0": 2} {
		from, err := w.objects.Watch(all, "/core/configmaps", upstream.ListOptions{ResourceVersion: version, Recursive: true, Predicate: upstream.Everything})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Stop()
		for n := range want {
			if event := <-from.ResultChan(); event.Type != watch.Added {
				t.Errorf("event %d from %s: %+v", n, version, event)
			}
		}
		watches[version] = from
	}
	if err := w.update(w.admin); err != nil {
		t.Fatal(err)
	}
	for version, from := range watches {
		event := <-from.ResultChan()
		is, err := meta.Accessor(event.Object)
		if err != nil || event.Type != watch.Modified || logicalcluster.From(is) != "root" {
			t.Fatalf("from %s: %+v", version, event)
		}
		w.isShown("an event from "+version, is.GetResourceVersion())
	}
}

// LogicalClusters say of which epoch their logical cluster is: fronts and other shards follow all of them, and hear of
// a new one before this replica does. What would be asked for each of them would be a read of etcd.
func TestLogicalClustersAreShownWithoutAsking(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	of := openOver(t, w.client, corev1alpha1.Resource("logicalclusters"), false)
	awaitCache(t, of)
	asked := 0
	w.client.ServeEpochs(storage.Epochs{
		Of:     func(context.Context, logicalcluster.Name) (int64, error) { asked++; return 0, nil },
		Await:  func(context.Context) error { return nil },
		Follow: func(func(logicalcluster.Name, int64, storage.Change)) (stop func()) { return nil },
	})
	own := context.WithValue(w.admin, ownKey{}, true)
	lc := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cluster", Annotations: map[string]string{clusters.EpochAnnotation: fmt.Sprint(epochOfRoot)}}}
	if err := of.Create(own, "/core.kcp.io/logicalclusters/default/cluster", lc, nil, 0); err != nil {
		t.Fatal(err)
	}
	list, all := &corev1.ConfigMapList{}, clusters.With(t.Context(), clusters.Wildcard)
	if err := of.GetList(all, "/core.kcp.io/logicalclusters", upstream.ListOptions{Recursive: true, Predicate: upstream.Everything}, list); err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	if epoch, _ := revisionIn(t, list.Items[0].ResourceVersion); epoch != epochOfRoot || asked > 0 {
		t.Errorf("it is shown as of epoch %d, and %d were asked for", epoch, asked)
	}
}
