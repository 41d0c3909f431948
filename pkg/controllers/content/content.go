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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/controllers"
)

// pageSize bounds what one list holds in memory, here and in the server.
const pageSize = 500

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
// It deletes without preconditions, unlike all other deletions here: whatever is in a namespace or cluster that ends,
// old or just created, has to go. The caller sees to it that nothing new comes.
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
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
		options.Continue = list.Continue
	}
}

func purge(ctx context.Context, client metadata.Interface, resource controllers.Resource, namespace string, remaining *Remaining) error {
	getter := client.Resource(resource.GVR)
	namespaces := map[string]bool{}
	err := Each(ctx, getter.Namespace(namespace), func(obj *metav1.PartialObjectMetadata) { namespaces[obj.Namespace] = true })
	if err != nil || len(namespaces) == 0 {
		return err
	}
	// No served path deletes a collection across namespaces.
	policy := metav1.DeletePropagationBackground
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		err := getter.Namespace(ns).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &policy}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete collection in namespace %q: %w", ns, err)
		}
	}
	return Each(ctx, getter.Namespace(namespace), func(obj *metav1.PartialObjectMetadata) {
		remaining.add(resource.GVR.GroupResource(), obj)
	})
}

func (r *Remaining) add(resource schema.GroupResource, obj *metav1.PartialObjectMetadata) {
	r.Objects[resource.String()]++
	for _, finalizer := range obj.Finalizers {
		r.Finalizers[finalizer]++
	}
}
