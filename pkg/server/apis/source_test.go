package apis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/etcdtest"
)

// informed are an informer of ConfigMaps, and one of their metadata.
type informed struct {
	objects  *clusters.Informer[*corev1.ConfigMap]
	metadata *clusters.Informer[*metav1.PartialObjectMetadata]
	changed  chan struct{} // capacity 1: one of them has changed
}

// run runs an informer until the test ends, and returns when it has read all objects. From then on it tells changed of
// each change.
func run[T clusters.Object](t *testing.T, inf *clusters.Informer[T], changed chan struct{}) {
	t.Helper()
	remove := inf.Follow(clusters.Range{}, func(_, _ T) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- inf.Run(t.Context()) }()
	t.Cleanup(func() { // the test's context has ended
		remove()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-inf.Synced()
}

func inform(t *testing.T, from *Reader) informed {
	t.Helper()
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	i := informed{
		clusters.NewInformer[*corev1.ConfigMap](from.Objects(resource), nil),
		clusters.NewInformer[*metav1.PartialObjectMetadata](from.Metadata(resource), nil),
		make(chan struct{}, 1),
	}
	run(t, i.objects, i.changed)
	run(t, i.metadata, i.changed)
	return i
}

// await returns once so is true, which it looks for after each change.
func await(t *testing.T, changed <-chan struct{}, what string, so func() bool) {
	t.Helper()
	for !so() {
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("in vain for a minute: %s", what)
		}
	}
}

// until waits until both informers have an object as wanted. Nil: gone.
func (i informed) until(t *testing.T, cluster, name string, want *corev1.ConfigMap) (obj *corev1.ConfigMap, meta *metav1.PartialObjectMetadata) {
	t.Helper()
	key := clusters.Key{Cluster: logicalcluster.Name(cluster), Namespace: "default", Name: name}
	await(t, i.changed, "the informers learn of "+key.String(), func() bool {
		var there, described bool
		obj, there = i.objects.Get(key)
		meta, described = i.metadata.Get(key)
		if want == nil {
			return !there && !described
		}
		return there && described && obj.ResourceVersion == want.ResourceVersion && meta.ResourceVersion == want.ResourceVersion
	})
	return obj, meta
}

// I6 and "one copy": what an informer holds besides the watch cache is a struct for each object.
func TestInformersShareTheirObjectsWithTheWatchCache(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	create := func(cluster, name string) *corev1.ConfigMap {
		t.Helper()
		made, err := s.kube(t, logicalcluster.Name(cluster)).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": cluster}}, Data: map[string]string{"in": cluster},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	listed := create("aa", "listed")
	i := inform(t, s.reader)
	i.until(t, "aa", "listed", listed)
	for _, watchers := range []int{0, 5} { // of some watchers and more the cache shares what it has encoded
		for range watchers {
			w, err := s.kube(t, "aa").CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
		}
		for _, cluster := range []string{"aa", "bb"} {
			name := fmt.Sprintf("watched-%d", watchers)
			want := create(cluster, name)
			obj, meta := i.until(t, cluster, name, want)
			if obj.Data["in"] != cluster || meta.Labels["of"] != cluster || len(obj.ManagedFields) == 0 || meta.ManagedFields != nil {
				t.Errorf("%s in %s: %+v and %+v", name, cluster, obj, meta)
			}
			at := request.WithNamespace(clusters.With(t.Context(), logicalcluster.Name(cluster)), "default")
			cached, err := s.reader.stored[corev1.SchemeGroupVersion.WithResource("configmaps")].Get(at, name, &metav1.GetOptions{ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			same := cached.(*corev1.ConfigMap)
			for what, maps := range map[string][2]map[string]string{"labels": {same.Labels, meta.Labels}, "annotations": {same.Annotations, obj.Annotations}, "data": {same.Data, obj.Data}} {
				if reflect.ValueOf(maps[0]).Pointer() != reflect.ValueOf(maps[1]).Pointer() {
					t.Errorf("%s in %s: the %s of an informer are a copy", name, cluster, what)
				}
			}
		}
	}

	changed := listed.DeepCopy()
	changed.Data = map[string]string{"in": "another"}
	changed, err := s.kube(t, "aa").CoreV1().ConfigMaps("default").Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if obj, _ := i.until(t, "aa", "listed", changed); obj.Data["in"] != "another" {
		t.Errorf("after an update: %v", obj.Data)
	}
	if err := s.kube(t, "aa").CoreV1().ConfigMaps("default").Delete(t.Context(), "listed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.until(t, "aa", "listed", nil)
}

// Events have no watch cache: a read for each would be a read of etcd.
func TestInformersOfUncachedResourcesFollowEtcd(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	inf := clusters.NewInformer[*metav1.PartialObjectMetadata](s.reader.Metadata(corev1.SchemeGroupVersion.WithResource("events")), nil)
	changed := make(chan struct{}, 1)
	run(t, inf, changed)
	_, err := s.kube(t, "aa").CoreV1().Events("default").Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "happened"}, InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "x", Kind: "ConfigMap"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, changed, "the informer learns of the event", func() bool {
		_, ok := inf.Get(clusters.Key{Cluster: "aa", Namespace: "default", Name: "happened"})
		return ok
	})
}

// A list from etcd would share nothing with the watch cache, and decode everything a second time.
func TestInformersListWhenTheWatchCacheIsReady(t *testing.T) {
	late := &lateStorage{ready: 3}
	s := stored{readable: late}
	if _, err := s.list(t.Context(), metav1.ListOptions{}, metadataOf); err != nil || late.listed != 1 || late.ready >= 0 {
		t.Errorf("%v, listed %d times, with %d looks to go", err, late.listed, late.ready)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late = &lateStorage{ready: 1 << 30}
	if _, err := (stored{readable: late}).list(ctx, metav1.ListOptions{}, metadataOf); !errors.Is(err, context.Canceled) || late.listed > 0 {
		t.Errorf("asked to end: %v, listed %d times", err, late.listed)
	}
}

// lateStorage is ready after so many looks.
type lateStorage struct {
	readable
	ready, listed int
}

func (l *lateStorage) ReadinessCheck() error {
	if l.ready--; l.ready >= 0 {
		return errors.New("not yet")
	}
	return nil
}

func (l *lateStorage) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	l.listed++
	return &corev1.ConfigMapList{}, nil
}

func TestASourceSaysWhatItDoesNotHave(t *testing.T) {
	unknown := new(Reader).Objects(corev1.SchemeGroupVersion.WithResource("pods"))
	if _, err := unknown.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("listed what is not stored")
	}
	if _, err := unknown.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("watched what is not stored")
	}
}
