// Package content empties namespaces and logical clusters, for the controllers that may let one go only when nothing
// is left in it.
package content

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/controllers"
)

const (
	// pageSize bounds what one list holds in memory, here and in the server.
	pageSize = 500
	// deleters is how many deletions are under way at a time: etcd commits together what comes together.
	deleters = 16
)

// Remaining is what a purge found still there, by live lists. Its zero value is "nothing".
type Remaining struct {
	// Objects counts by resource ("configmaps", "leases.coordination.k8s.io").
	Objects map[string]int
	// Finalizers counts the objects that wait for each finalizer.
	Finalizers map[string]int
}

// Empty reports whether nothing remained.
func (r Remaining) Empty() bool { return len(r.Objects) == 0 }

// DescribeObjects lists the counted resources in a stable order, for conditions.
func (r Remaining) DescribeObjects() string {
	return describe(r.Objects, func(name string, n int) string { return fmt.Sprintf("%s has %d resource instances", name, n) })
}

// DescribeFinalizers lists the counted finalizers in a stable order, for conditions.
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

// Of returns the resources for which keep holds.
func Of(resources []controllers.Resource, keep func(controllers.Resource) bool) []controllers.Resource {
	return slices.DeleteFunc(slices.Clone(resources), func(r controllers.Resource) bool { return !keep(r) })
}

// Purge asks for the deletion of every object of the given resources, in one namespace or, with namespace "", in the
// whole logical cluster that ctx names, and returns what remained. Finalizers are respected: such objects remain, and
// whoever calls comes again when they have changed.
//
// Each deletion carries the uid that a live list has shown: what comes later under the same name is not meant. The caller
// has made sure, by a live read, that the namespace or cluster is still the one that ends, and sees to it that nothing new
// comes.
//
// A resource that fails does not keep the others from being purged; with an error, Remaining is what is known.
func Purge(ctx context.Context, client metadata.Interface, resources []controllers.Resource, namespace string) (Remaining, error) {
	var errs []error
	remaining := Remaining{Objects: map[string]int{}, Finalizers: map[string]int{}}
	for _, resource := range resources {
		if err := purge(ctx, client, resource, namespace, &remaining); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", resource.GVR.GroupResource(), err))
		}
	}
	return remaining, errors.Join(errs...)
}

// Find returns what is there, without deleting any of it.
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

// Each calls visit with every object that a live list returns, page by page.
func Each(ctx context.Context, client metadata.ResourceInterface, visit func(*metav1.PartialObjectMetadata)) error {
	return eachPage(ctx, client, func(page []metav1.PartialObjectMetadata) error {
		for i := range page {
			visit(&page[i])
		}
		return nil
	})
}

// eachPage ends at the first error.
func eachPage(ctx context.Context, client metadata.ResourceInterface, visit func([]metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if err := visit(list.Items); err != nil || list.Continue == "" {
			return err
		}
		options.Continue = list.Continue
	}
}

func purge(ctx context.Context, client metadata.Interface, resource controllers.Resource, namespace string, remaining *Remaining) error {
	getter, found := client.Resource(resource.GVR), false
	err := eachPage(ctx, getter.Namespace(namespace), func(page []metav1.PartialObjectMetadata) error {
		found = found || len(page) > 0
		return deleteAll(ctx, getter, page)
	})
	if err != nil || !found {
		return err
	}
	return Each(ctx, getter.Namespace(namespace), func(obj *metav1.PartialObjectMetadata) {
		remaining.add(resource.GVR.GroupResource(), obj)
	})
}

// deleteAll asks for the deletion of all objects and returns the first error. (The server's own way to do that,
// deletecollection, takes no preconditions, is not served across namespaces, and deletes one after the other.)
func deleteAll(ctx context.Context, getter metadata.Getter, objects []metav1.PartialObjectMetadata) error {
	errs := make([]error, len(objects))
	free := make(chan struct{}, deleters)
	var deletions sync.WaitGroup
	for i := range objects {
		free <- struct{}{}
		deletions.Go(func() {
			errs[i] = deleteOne(ctx, getter, &objects[i])
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

func deleteOne(ctx context.Context, getter metadata.Getter, obj *metav1.PartialObjectMetadata) error {
	policy := metav1.DeletePropagationBackground
	err := getter.Namespace(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &obj.UID}, PropagationPolicy: &policy,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // it has gone
		return fmt.Errorf("delete %s in namespace %q: %w", obj.Name, obj.Namespace, err)
	}
	return nil
}

func (r *Remaining) add(resource schema.GroupResource, obj *metav1.PartialObjectMetadata) {
	r.Objects[resource.String()]++
	for _, finalizer := range obj.Finalizers {
		r.Finalizers[finalizer]++
	}
}
