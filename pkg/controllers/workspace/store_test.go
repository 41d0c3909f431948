package workspace

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

var errCrashed = errors.New("the leader died")

// store holds the objects of one resource as the server does as far as the controller counts on it: conflicts on
// resourceVersion and uid, which client-go's fake does not know, finalizers, and a cluster in every call.
type store[T clusters.Object] struct {
	source  *controllertest.Source[T]
	objects map[clusters.Key]T
	writes  *writes
	refuse  error // of creations
}

// writes are counted over all stores of a test.
type writes struct {
	done int
	// crash is the number of the first write that fails without effect, as all do after it; 0: none does.
	crash int
}

func newStore[T clusters.Object](w *writes, objs ...T) *store[T] {
	s := &store[T]{source: controllertest.NewSource[T](), objects: map[clusters.Key]T{}, writes: w}
	for _, obj := range objs {
		s.put(obj)
	}
	return s
}

func (s *store[T]) put(obj T) T {
	obj = s.source.Set(obj)
	s.objects[clusters.KeyOf(obj)] = obj
	return obj.DeepCopyObject().(T)
}

func (s *store[T]) drop(key clusters.Key) {
	delete(s.objects, key)
	s.source.Delete(key)
}

func (s *store[T]) write() error {
	if s.writes.done++; s.writes.crash > 0 && s.writes.done >= s.writes.crash {
		return errCrashed
	}
	return nil
}

func at(ctx context.Context, name string) clusters.Key {
	cluster, ok := clusters.From(ctx)
	if !ok {
		panic("a call without a cluster")
	}
	return clusters.Key{Cluster: cluster, Name: name}
}

func (s *store[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	obj, ok := s.objects[at(ctx, name)]
	if !ok {
		return obj, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return obj.DeepCopyObject().(T), nil
}

func (s *store[T]) Create(ctx context.Context, obj T, _ metav1.CreateOptions) (T, error) {
	if err := s.write(); err != nil {
		return obj, err
	}
	if s.refuse != nil {
		return obj, s.refuse
	}
	key := at(ctx, obj.GetName())
	if _, ok := s.objects[key]; ok {
		return obj, apierrors.NewAlreadyExists(schema.GroupResource{}, obj.GetName())
	}
	obj = obj.DeepCopyObject().(T)
	annotations := obj.GetAnnotations()
	annotations["kcp.io/cluster"] = key.Cluster.String()
	obj.SetAnnotations(annotations)
	return s.put(obj), nil
}

func (s *store[T]) Update(ctx context.Context, obj T, _ metav1.UpdateOptions) (T, error) {
	if err := s.write(); err != nil {
		return obj, err
	}
	old, err := s.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return obj, err
	}
	if obj.GetResourceVersion() != old.GetResourceVersion() || obj.GetUID() != old.GetUID() {
		return obj, apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), nil)
	}
	obj = s.put(obj)
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		s.drop(clusters.KeyOf(obj))
	}
	return obj, nil
}

func (s *store[T]) UpdateStatus(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error) {
	return s.Update(ctx, obj, o)
}

func (s *store[T]) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if err := s.write(); err != nil {
		return err
	}
	obj, err := s.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if p := options.Preconditions; *p.UID != obj.GetUID() || *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, name, nil)
	}
	obj.SetDeletionTimestamp(&deletedAt)
	s.put(obj)
	return nil
}

// leader returns a controller whose caches are up to date when it is returned.
func leader(t *testing.T, workspaces *store[*tenancyv1alpha1.Workspace], logicalClusters *store[*corev1alpha1.LogicalCluster]) *controller {
	t.Helper()
	c := &controller{
		workspaces:      controllertest.Informer(t, workspaces.source, nil),
		logicalClusters: controllertest.Informer(t, logicalClusters.source, nil),
		workspace:       workspaces,
		logicalCluster:  logicalClusters,
		baseURL:         "https://shard",
		others:          controllers.NewShards("root", nil),
	}
	c.shards = newShards("root", controllers.Informers{
		LogicalClusters: c.logicalClusters, Shards: controllertest.Informer(t, controllertest.NewSource[*corev1alpha1.Shard](), nil),
	}, c.others)
	return c
}
