package controllers

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/clusters"
)

// CustomResources returns the custom resources that a logical cluster defines or has bound, ordered by their names, as
// the caches show them. Each is in the version in which its objects are stored, which the controllers of this process
// can use even if it is not served.
func (i Informers) CustomResources(cluster logicalcluster.Name) (all []Resource) {
	for _, d := range i.Definitions.List(cluster) {
		if r, ok := customResource(d); ok {
			all = append(all, r)
		}
	}
	for _, b := range i.APIBindings.List(cluster) {
		bound, _ := i.boundResources(b)
		all = append(all, bound...)
	}
	return sorted(all)
}

// livePage is how many definitions or bindings the first list asks for. A page of this size is read from etcd at once.
// A larger list waits until the watch cache has caught up, for a tenth of a second, and then costs much less than so
// many pages, for each of which etcd's bytes are decoded.
const livePage = 50

// LiveCustomResources is CustomResources for what must not depend on caches, such as the end of a namespace. It fails
// as long as the cache is behind the server: try again then.
func (i Informers) LiveCustomResources(ctx context.Context, client metadata.Interface, cluster logicalcluster.Name) ([]Resource, error) {
	ctx = clusters.With(ctx, cluster)
	definitions := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	if _, err := caughtUp(ctx, definitions, i.Definitions, cluster); err != nil {
		return nil, fmt.Errorf("definitions: %w", err)
	}
	bindings := client.Resource(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"))
	if _, err := caughtUp(ctx, bindings, i.APIBindings, cluster); err != nil {
		return nil, fmt.Errorf("bindings: %w", err)
	}
	for _, b := range i.APIBindings.List(cluster) {
		if _, ok := i.boundResources(b); !ok {
			return nil, fmt.Errorf("the cache has not got all schemas of binding %s yet", b.Name)
		}
	}
	return i.CustomResources(cluster), nil
}

// LiveBindings returns an error as long as the cache lacks changes of bindings that were made before the call, in any
// logical cluster, and otherwise the revision up to which it has all of them. It takes a list of all of them.
func (i Informers) LiveBindings(ctx context.Context, client metadata.Interface) (revision string, err error) {
	bindings := client.Resource(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"))
	return caughtUp(clusters.With(ctx, clusters.Wildcard), bindings, i.APIBindings, "")
}

// caughtUp returns an error unless the cache has all objects of a live list, and the revision of that. cluster is empty
// if these say themselves where they are.
func caughtUp[T clusters.Object](ctx context.Context, client metadata.ResourceInterface, cache *clusters.Informer[T], cluster logicalcluster.Name) (revision string, err error) {
	list, err := client.List(ctx, metav1.ListOptions{Limit: livePage})
	if err == nil && list.Continue != "" {
		list, err = client.List(ctx, metav1.ListOptions{}) // of all, and at least as new
	}
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	for n := range list.Items {
		live := &list.Items[n]
		key := clusters.Key{Cluster: cluster, Name: live.Name}
		if cluster.Empty() {
			key = clusters.KeyOf(live)
		}
		if cached, ok := cache.Get(key); !ok || behind(cached, live) {
			return "", fmt.Errorf("the cache has not got %s yet", live.Name)
		}
	}
	return list.ResourceVersion, nil
}

// behind reports whether a cached object is older than what the server shows.
func behind(cached, live metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), live.GetResourceVersion())
	return err != nil || order < 0
}

// CustomResource returns the custom resource of a kind in a logical cluster, as the caches show it.
func (i Informers) CustomResource(cluster logicalcluster.Name, kind schema.GroupKind) (Resource, bool) {
	// Nearly all resources are called as their kinds are, so that not all of the group need be looked at.
	usual, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	if d, ok := i.Definitions.Get(clusters.Key{Cluster: cluster, Name: usual.GroupResource().String()}); ok {
		if r, ok := customResource(d); ok && r.Kind == kind.Kind {
			return r, true
		}
	}
	for _, d := range i.Definitions.ByIndex(ByGroup, GroupValue(cluster, kind.Group)) {
		if r, ok := customResource(d); ok && r.Kind == kind.Kind {
			return r, true
		}
	}
	for _, b := range i.APIBindings.List(cluster) {
		bound, _ := i.boundResources(b)
		for _, r := range bound {
			if r.GVR.Group == kind.Group && r.Kind == kind.Kind {
				return r, true
			}
		}
	}
	return Resource{}, false
}

// DefinitionLeaving reports whether a definition waits for its objects to be deleted.
func DefinitionLeaving(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.DeletionTimestamp != nil && apihelpers.CRDHasFinalizer(d, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// customResource returns what a definition defines. It is not ok if the definition has never been established: then
// there is no object of it.
func customResource(d *apiextensionsv1.CustomResourceDefinition) (r Resource, ok bool) {
	if !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		return Resource{}, false
	}
	names := d.Status.AcceptedNames
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return Resource{
				GVR:  schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: names.Plural},
				Kind: names.Kind, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
			}, true
		}
	}
	return Resource{}, false
}
