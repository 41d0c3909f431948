// Package content empties namespaces and logical clusters, for the controllers that remove their finalizers when
// nothing is left.
package content

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

const (
	// PageSize is how many objects a list asks for. It bounds the memory that it takes, here and in the server.
	// Most clusters hold less, and the server answers such small pages at once.
	PageSize = 50
	// deleters is how many deletions are in flight at a time. etcd commits concurrent writes together.
	deleters = 16
)

// Remaining is what live lists have found. The zero value means that nothing remains.
type Remaining struct {
	// Objects counts objects by resource, such as "configmaps" or "leases.coordination.k8s.io".
	Objects map[string]int
	// Finalizers counts the objects that have each finalizer.
	Finalizers map[string]int
}

// Empty reports whether nothing remained.
func (r Remaining) Empty() bool { return len(r.Objects) == 0 }

// DescribeObjects lists the counts of objects, sorted by resource, for conditions.
func (r Remaining) DescribeObjects() string {
	return describe(r.Objects, func(name string, n int) string { return fmt.Sprintf("%s has %d resource instances", name, n) })
}

// DescribeFinalizers lists the counts of finalizers, sorted by name, for conditions.
func (r Remaining) DescribeFinalizers() string {
	return describe(r.Finalizers, func(name string, n int) string { return fmt.Sprintf("%s in %d resource instances", name, n) })
}

func describe(counts map[string]int, item func(string, int) string) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		items = append(items, item(name, counts[name]))
	}
	return strings.Join(items, ", ")
}

// Of returns the resources for which keep returns true.
func Of(resources []controllers.Resource, keep func(controllers.Resource) bool) []controllers.Resource {
	return slices.DeleteFunc(slices.Clone(resources), func(r controllers.Resource) bool { return !keep(r) })
}

// Purge deletes all objects of the given resources in one namespace of the logical cluster in ctx, or with namespace ""
// in the whole cluster. It returns what remains. Objects with finalizers remain; the caller calls Purge again when they
// have changed.
//
// Each deletion carries the uid that a live list has shown, so an object that is created later under the same name is
// not deleted. The caller must have made sure, by a live read, that this namespace or cluster is being deleted, and
// that nothing new can be created in it.
//
// What gives rights and identity goes last, once nothing else remains: whoever has to remove a finalizer needs it until
// then.
//
// If a resource fails, others are purged nevertheless. Together with an error, or if something remains, Remaining may
// be incomplete.
func Purge(ctx context.Context, client metadata.Interface, resources []controllers.Resource, namespace string) (Remaining, error) {
	var errs []error
	remaining := Remaining{Objects: map[string]int{}, Finalizers: map[string]int{}}
	for now := range stages {
		for _, resource := range resources {
			if stageOf(resource) != now {
				continue
			}
			if err := purge(ctx, client, resource, namespace, &remaining); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", resource.GVR.GroupResource(), err))
			}
		}
		if len(errs) > 0 || !remaining.Empty() {
			break
		}
	}
	return remaining, errors.Join(errs...)
}

// stages is how many there are, one after the other.
const stages = 3

// stageOf returns when objects of a resource are deleted. Secrets may have finalizers of whoever has an account, and
// rights.
func stageOf(r controllers.Resource) int {
	switch r.GVR.GroupResource() {
	case corev1.Resource("secrets"):
		return 1
	case corev1.Resource("serviceaccounts"), rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"), rbacv1.Resource("clusterroles"), rbacv1.Resource("clusterrolebindings"):
		return 2
	}
	return 0
}

// Find returns what is there, and deletes nothing.
func Find(ctx context.Context, client metadata.Interface, resources []controllers.Resource, namespace string) (Remaining, error) {
	remaining := Remaining{Objects: map[string]int{}, Finalizers: map[string]int{}}
	for _, resource := range resources {
		err := Each(ctx, client.Resource(resource.GVR).Namespace(namespace), func(obj *metav1.PartialObjectMetadata) {
			remaining.add(resource.GVR.GroupResource(), obj)
		})
		if err != nil {
			return remaining, fmt.Errorf("%s: %w", resource.GVR.GroupResource(), err)
		}
	}
	return remaining, nil
}

// Each calls visit with every stored object of a live list, page by page.
func Each(ctx context.Context, client metadata.ResourceInterface, visit func(*metav1.PartialObjectMetadata)) error {
	return eachPage(ctx, client, func(page []metav1.PartialObjectMetadata) error {
		for i := range page {
			visit(&page[i])
		}
		return nil
	})
}

// eachPage calls visit with every page of a live list, until visit fails.
func eachPage(ctx context.Context, client metadata.ResourceInterface, visit func([]metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: PageSize}
	for {
		list, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		stored := slices.DeleteFunc(list.Items, func(obj metav1.PartialObjectMetadata) bool { return clusters.IsBuiltIn(&obj) })
		if err := visit(stored); err != nil || list.Continue == "" {
			return err
		}
		options.Continue = list.Continue
	}
}

func purge(ctx context.Context, client metadata.Interface, resource controllers.Resource, namespace string, remaining *Remaining) error {
	objects, found := client.Resource(resource.GVR), false
	err := eachPage(ctx, objects.Namespace(namespace), func(page []metav1.PartialObjectMetadata) error {
		found = found || len(page) > 0
		return deleteAll(ctx, objects, page)
	})
	if err != nil || !found {
		return err
	}
	return Each(ctx, objects.Namespace(namespace), func(obj *metav1.PartialObjectMetadata) {
		remaining.add(resource.GVR.GroupResource(), obj)
	})
}

// deleteAll deletes all objects and returns the first error. The server's deletecollection is not used: it takes no
// preconditions, is not served across namespaces, and deletes objects one after the other.
func deleteAll(ctx context.Context, client metadata.Getter, objects []metav1.PartialObjectMetadata) error {
	errs := make([]error, len(objects))
	// Another deletion of what waits for finalizers changes nothing, and each pass would repeat it.
	objects = slices.DeleteFunc(slices.Clone(objects), func(obj metav1.PartialObjectMetadata) bool {
		return obj.DeletionTimestamp != nil && len(obj.Finalizers) > 0
	})
	free := make(chan struct{}, deleters)
	var deletions sync.WaitGroup
	for i := range objects {
		free <- struct{}{}
		deletions.Go(func() {
			errs[i] = deleteOne(ctx, client, &objects[i])
			<-free
		})
	}
	deletions.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func deleteOne(ctx context.Context, client metadata.Getter, obj *metav1.PartialObjectMetadata) error {
	policy := metav1.DeletePropagationBackground
	err := client.Namespace(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &obj.UID}, PropagationPolicy: &policy,
	})
	// both mean that this object has gone
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s in namespace %q: %w", obj.Name, obj.Namespace, err)
	}
	return nil
}

// Finalized returns a namespace without the finalizer for its content, or nil if it does not have that finalizer.
func Finalized(namespace *corev1.Namespace) *corev1.Namespace {
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	out := namespace.DeepCopy()
	out.Spec.Finalizers = slices.DeleteFunc(out.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	return out
}

func (r *Remaining) add(resource schema.GroupResource, obj *metav1.PartialObjectMetadata) {
	r.Objects[resource.String()]++
	for _, finalizer := range obj.Finalizers {
		r.Finalizers[finalizer]++
	}
}
