package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	upstream "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// open returns the layers of configmaps over an etcd of their own.
func open(t testing.TB, uncached bool) upstream.Interface {
	t.Helper()
	return openOver(t, newClient(t, etcdtest.Start(t)), corev1.Resource("configmaps"), uncached)
}

// openOver returns the layers of a resource that holds configmaps.
func openOver(t testing.TB, client *storage.Client, resource schema.GroupResource, uncached bool) upstream.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, version := range []string{"v1", runtime.APIVersionInternal} {
		scheme.AddKnownTypes(schema.GroupVersion{Version: version}, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	}
	scheme.AddKnownTypes(schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal}, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	getter := storage.NewRESTOptionsGetter(client, func(schema.GroupResource) (storage.Encoding, error) {
		encoding := storage.Encoding{
			Serializer: serializer.NewCodecFactory(scheme), Version: corev1.SchemeGroupVersion, MediaType: runtime.ContentTypeProtobuf, Uncached: uncached,
		}
		if resource == leases {
			encoding.Term = shownBy
		}
		return encoding, nil
	})
	opts, err := getter.GetRESTOptions(resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	layers, destroy, err := opts.Decorator(
		opts.StorageConfig, opts.ResourcePrefix,
		func(obj runtime.Object) (string, error) {
			cm := obj.(*corev1.ConfigMap)
			return genericregistry.NamespaceKeyFunc(request.WithNamespace(context.Background(), cm.Namespace), opts.ResourcePrefix, cm.Name)
		},
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
		upstream.DefaultNamespaceScopedAttr, nil, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return layers
}

const key = "/core/configmaps/default/x"

func object() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}
}

func TestNothingIsReadOrWrittenWithoutACluster(t *testing.T) {
	for name, uncached := range map[string]bool{"cached": false, "uncached": true} {
		t.Run(name, func(t *testing.T) {
			layers := open(t, uncached)
			for _, ctx := range []context.Context{t.Context(), clusters.With(t.Context(), ""), clusters.With(t.Context(), "a/b"), clusters.With(t.Context(), "..")} {
				assertRefused(t, layers, ctx)
			}
		})
	}
}

// A consistent list is answered on an idle etcd too, where no write comes and wakes those who wait for one.
func TestAListDoesNotWaitForTheNextWrite(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	ctx := clusters.With(t.Context(), "root")
	everything := upstream.ListOptions{Recursive: true, Predicate: upstream.Everything}
	filled := func(name string) upstream.Interface {
		layers := openOver(t, client, corev1.Resource(name), false)
		waitUntilFilled(t, layers)
		return layers
	}
	early := filled("early")
	if _, err := client.Etcd().Put(t.Context(), "/elsewhere", ""); err != nil {
		t.Fatal(err)
	}
	filled("late")                                         // its watch begins beyond the last revision
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // upstream gives up waiting after 3
	defer cancel()
	if err := early.GetList(ctx, "/core/early", everything, &corev1.ConfigMapList{}); err != nil {
		t.Error(err)
	}
}

// waitUntilFilled returns when the watch cache has what etcd had.
func waitUntilFilled(t testing.TB, layers upstream.Interface) {
	t.Helper()
	for layers.ReadinessCheck() != nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func assertRefused(t *testing.T, layers upstream.Interface, ctx context.Context) {
	t.Helper()
	out := &corev1.ConfigMap{}
	noop := upstream.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) { return o, nil })
	valid := func(context.Context, runtime.Object) error { return nil }
	all := upstream.ListOptions{Predicate: upstream.Everything, Recursive: true}
	for name, call := range map[string]func() error{
		"create": func() error { return layers.Create(ctx, key, object(), out, 0) },
		"get":    func() error { return layers.Get(ctx, key, upstream.GetOptions{}, out) },
		"update": func() error { return layers.GuaranteedUpdate(ctx, key, out, true, nil, noop, nil) },
		"delete": func() error { return layers.Delete(ctx, key, out, nil, valid, nil, upstream.DeleteOptions{}) },
		"list":   func() error { return layers.GetList(ctx, "/core/configmaps", all, &corev1.ConfigMapList{}) },
		"watch": func() error {
			_, err := layers.Watch(ctx, "/core/configmaps", all)
			return err
		},
	} {
		if err := call(); !apierrors.IsBadRequest(err) && !apierrors.IsInternalError(err) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

func TestAllClustersAreForReadingOnly(t *testing.T) {
	layers := open(t, true)
	ctx := clusters.With(t.Context(), clusters.Wildcard)
	out := &corev1.ConfigMap{}
	if err := layers.Create(ctx, key, object(), out, 0); !apierrors.IsBadRequest(err) {
		t.Errorf("create: %v", err)
	}
	if err := layers.Get(ctx, key, upstream.GetOptions{}, out); !apierrors.IsBadRequest(err) {
		t.Errorf("get: %v", err)
	}
	// A namespace would be read as a cluster.
	inNamespace := request.WithNamespace(ctx, "default")
	if err := layers.GetList(inNamespace, "/core/configmaps/default", upstream.ListOptions{Predicate: upstream.Everything, Recursive: true}, &corev1.ConfigMapList{}); !apierrors.IsBadRequest(err) {
		t.Errorf("list of a namespace: %v", err)
	}
}

func TestTheStampComesFromTheKey(t *testing.T) {
	layers := open(t, true)
	ctx := clusters.With(t.Context(), "aa")
	out := &corev1.ConfigMap{}
	in := object()
	in.Annotations = map[string]string{logicalcluster.AnnotationKey: "bb", "own": "kept"}
	shared := in.Annotations
	if err := layers.Create(ctx, key, in, out, 0); err != nil {
		t.Fatal(err)
	}
	if out.Annotations[logicalcluster.AnnotationKey] != "aa" || out.Annotations["own"] != "kept" {
		t.Errorf("created with %v", out.Annotations)
	}
	if shared[logicalcluster.AnnotationKey] != "bb" {
		t.Error("the caller's map was changed")
	}
	strip := upstream.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		o.(*corev1.ConfigMap).Annotations = nil
		return o, nil
	})
	if err := layers.GuaranteedUpdate(ctx, key, out, false, nil, strip, nil); err != nil {
		t.Fatal(err)
	}
	if out.Annotations[logicalcluster.AnnotationKey] != "aa" {
		t.Errorf("updated to %v", out.Annotations)
	}
}

// Versions of the watch cache's tree were most of what a shard of many objects held.
func TestTheWatchCacheKeepsNoSnapshots(t *testing.T) {
	if utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		t.Error("it keeps a snapshot for each change")
	}
}

// A consistent list of one object or of a small page is as fresh as a get, whatever the watch cache is at: here it
// hears of nothing after its first list.
func TestSmallConsistentListsDoNotWaitForTheWatchCache(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	client.HoldWatches()
	layers := openOver(t, client, corev1.Resource("configmaps"), false)
	in := clusters.With(t.Context(), "root")
	waitUntilFilled(t, layers)
	if err := layers.Create(in, key, object(), nil, 0); err != nil {
		t.Fatal(err)
	}
	page := upstream.Everything
	page.Limit = 50
	large, selected := page, page
	large.Limit = 51
	selected.Label = labels.SelectorFromSet(labels.Set{"a": "b"})
	all := clusters.With(t.Context(), clusters.Wildcard)
	for name, list := range map[string]struct {
		in    context.Context
		key   string
		opts  upstream.ListOptions
		waits bool
	}{
		"one object":                 {in, key, upstream.ListOptions{Predicate: upstream.Everything}, false},
		"a page of a cluster":        {in, "/core/configmaps", upstream.ListOptions{Predicate: page, Recursive: true}, false},
		"a page of what is selected": {in, "/core/configmaps", upstream.ListOptions{Predicate: selected, Recursive: true}, true},
		"a large page":               {in, "/core/configmaps", upstream.ListOptions{Predicate: large, Recursive: true}, true},
		"a list of a cluster":        {in, "/core/configmaps", upstream.ListOptions{Predicate: upstream.Everything, Recursive: true}, true},
		"a page of all clusters":     {all, "/core/configmaps", upstream.ListOptions{Predicate: page, Recursive: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// the watch cache takes 3, and more than that
			ctx, cancel := context.WithTimeout(list.in, 2*time.Second)
			defer cancel()
			var found corev1.ConfigMapList
			err := layers.GetList(ctx, list.key, list.opts, &found)
			if waited := ctx.Err() != nil || err != nil; waited != list.waits || !waited && len(found.Items) != 1 {
				t.Errorf("waited: %v; %d items, %v", waited, len(found.Items), err)
			}
		})
	}
}
