package controllers

import (
	"context"
	"maps"
	"reflect"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// Informers are caches over all logical clusters that live as long as the process. Objects in them are shared: do not
// modify them. They may be stale, also at the beginning of a term: docs/SUPERVISION.md, "Warm start", says what writes
// must do about it.
//
// Each informer is a field, so that All finds it, and is made by NewInformers.
type Informers struct {
	Namespaces      *clusters.Informer[*corev1.Namespace]
	Workspaces      *clusters.Informer[*tenancyv1alpha1.Workspace]
	LogicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	Shards          *clusters.Informer[*corev1alpha1.Shard]
	ConfigMaps      *clusters.Informer[*corev1.ConfigMap]
	Leases          *clusters.Informer[*coordinationv1.Lease]
	LeaseCandidates *clusters.Informer[*coordinationv1beta1.LeaseCandidate]
	// What RBAC says of each logical cluster.
	Roles               *clusters.Informer[*rbacv1.Role]
	RoleBindings        *clusters.Informer[*rbacv1.RoleBinding]
	ClusterRoles        *clusters.Informer[*rbacv1.ClusterRole]
	ClusterRoleBindings *clusters.Informer[*rbacv1.ClusterRoleBinding]
	// Definitions has the indexes ByName, ByGroup and ByGroupLeaving.
	Definitions *clusters.Informer[*apiextensionsv1.CustomResourceDefinition]
	// What logical clusters offer each other: schemas (those that bindings use are in cluster
	// clusters.BoundSchemas), exports, and bindings with the indexes of BindingIndexers.
	APIResourceSchemas *clusters.Informer[*apisv1alpha1.APIResourceSchema]
	APIExports         *clusters.Informer[*apisv1alpha2.APIExport]
	APIBindings        *clusters.Informer[*apisv1alpha2.APIBinding]
	// CustomObjects has the metadata of custom objects of all kinds, with the index ByOwner.
	CustomObjects *clusters.Informer[*clusters.CustomObject]
	// Metadata has the metadata of each of Deps.Resources: a view of the informer above, if there is one, or an
	// informer. All have the index ByOwner.
	Metadata map[schema.GroupVersionResource]clusters.Cache[*metav1.PartialObjectMetadata]
}

// Informer is one of Informers, for any type of objects.
type Informer interface {
	// Run keeps the cache up to date until ctx ends. It may be called once.
	Run(ctx context.Context) error
	// Synced returns a channel that is closed when the cache holds a complete list.
	Synced() <-chan struct{}
	// Handlers returns the number of handlers that were added and not removed.
	Handlers() int
}

// Source says what informers list and watch: all objects of a resource, in all logical clusters.
type Source interface {
	// Objects is for an informer of the resource's objects.
	Objects(resource schema.GroupVersionResource) cache.ListerWatcherWithContext
	// Metadata is for an informer of *metav1.PartialObjectMetadata.
	Metadata(resource schema.GroupVersionResource) cache.ListerWatcherWithContext
	// CustomObjects is for an informer of *clusters.CustomObject: all custom objects, of all kinds.
	CustomObjects() cache.ListerWatcherWithContext
}

// NewInformers returns informers that read from a source. Run them to fill them.
func NewInformers(from Source, resources []Resource) Informers {
	source := &viewedSource{from, map[schema.GroupResource]clusters.Cache[*metav1.PartialObjectMetadata]{}}
	out := Informers{
		Namespaces:      newInformer(source, corev1.SchemeGroupVersion.WithResource("namespaces"), OwnerIndexers[*corev1.Namespace]()),
		Workspaces:      newInformer(source, tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"), OwnerIndexers[*tenancyv1alpha1.Workspace]()),
		LogicalClusters: newInformer(source, corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), logicalClusterIndexers()),
		Shards:          newInformer(source, corev1alpha1.SchemeGroupVersion.WithResource("shards"), OwnerIndexers[*corev1alpha1.Shard]()),
		ConfigMaps:      newInformer(source, corev1.SchemeGroupVersion.WithResource("configmaps"), OwnerIndexers[*corev1.ConfigMap]()),
		Leases:          newInformer(source, coordinationv1.SchemeGroupVersion.WithResource("leases"), OwnerIndexers[*coordinationv1.Lease]()),
		LeaseCandidates: newInformer(source, coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates"), CandidateIndexers()),

		Roles:               newInformer(source, rbacv1.SchemeGroupVersion.WithResource("roles"), OwnerIndexers[*rbacv1.Role]()),
		RoleBindings:        newInformer(source, rbacv1.SchemeGroupVersion.WithResource("rolebindings"), roleBindingIndexers()),
		ClusterRoles:        newInformer(source, rbacv1.SchemeGroupVersion.WithResource("clusterroles"), ClusterRoleIndexers()),
		ClusterRoleBindings: newInformer(source, rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), clusterRoleBindingIndexers()),
		Definitions:         newInformer(source, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), DefinitionIndexers()),
		APIResourceSchemas:  newInformer(source, apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"), OwnerIndexers[*apisv1alpha1.APIResourceSchema]()),
		APIExports:          newInformer(source, apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"), OwnerIndexers[*apisv1alpha2.APIExport]()),
		APIBindings:         newInformer(source, apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), BindingIndexers()),
		CustomObjects:       clusters.NewInformer(source.CustomObjects(), OwnerIndexers[*clusters.CustomObject]()),
	}
	out.Metadata = map[schema.GroupVersionResource]clusters.Cache[*metav1.PartialObjectMetadata]{}
	for _, r := range resources {
		if view, ok := source.views[r.GVR.GroupResource()]; ok {
			out.Metadata[r.GVR] = view
			continue
		}
		out.Metadata[r.GVR] = clusters.NewInformer(source.Metadata(r.GVR), OwnerIndexers[*metav1.PartialObjectMetadata]())
	}
	return out
}

// ByMoving is the index of logical clusters that come, may leave, or have moved: all have IsMovingValue.
const (
	ByMoving      = "moving"
	IsMovingValue = "yes"
)

func logicalClusterIndexers() map[string]func(*corev1alpha1.LogicalCluster) []string {
	indexers := clusters.AssignedIndexers()
	maps.Copy(indexers, OwnerIndexers[*corev1alpha1.LogicalCluster]())
	indexers[ByMoving] = func(lc *corev1alpha1.LogicalCluster) []string {
		if clusters.IsMoving(lc) {
			return []string{IsMovingValue}
		}
		return nil
	}
	return indexers
}

// ByName is the index of definitions by their names, over all logical clusters, ByGroup that by cluster and API group.
// ByGroupLeaving is ByGroup of those that wait for their objects to be deleted.
const (
	ByName         = "name"
	ByGroup        = "group"
	ByGroupLeaving = "group leaving"
)

// GroupValue returns the value of a group in ByGroup and ByGroupLeaving.
func GroupValue(cluster logicalcluster.Name, group string) string {
	return cluster.String() + "|" + group
}

// DefinitionIndexers returns the indexes that Informers.Definitions has.
func DefinitionIndexers() map[string]func(*apiextensionsv1.CustomResourceDefinition) []string {
	indexers := OwnerIndexers[*apiextensionsv1.CustomResourceDefinition]()
	indexers[ByName] = func(d *apiextensionsv1.CustomResourceDefinition) []string { return []string{d.Name} }
	indexers[ByGroup] = func(d *apiextensionsv1.CustomResourceDefinition) []string {
		return []string{GroupValue(logicalcluster.From(d), d.Spec.Group)}
	}
	indexers[ByGroupLeaving] = func(d *apiextensionsv1.CustomResourceDefinition) []string {
		if !DefinitionLeaving(d) {
			return nil
		}
		return []string{GroupValue(logicalcluster.From(d), d.Spec.Group)}
	}
	return indexers
}

// viewedSource has a view of the metadata of each informer that was made of it, so that there is no second informer of
// a resource.
type viewedSource struct {
	Source
	views map[schema.GroupResource]clusters.Cache[*metav1.PartialObjectMetadata]
}

func newInformer[T interface {
	clusters.Object
	metav1.ObjectMetaAccessor
}](source *viewedSource, resource schema.GroupVersionResource, indexers map[string]func(T) []string) *clusters.Informer[T] {
	informer := clusters.NewInformer(source.Objects(resource), indexers)
	source.views[resource.GroupResource()] = clusters.MetadataOf(informer)
	return informer
}

// All returns the informers by name: "namespaces", "metadata of secrets". It finds them by reflection, so that none can
// be forgotten. Fields that a test leaves nil are left out, and so are views.
func (i Informers) All() map[string]Informer {
	all := map[string]Informer{}
	fields := reflect.ValueOf(i)
	for n := range fields.NumField() {
		if informer, ok := fields.Field(n).Interface().(Informer); ok && !fields.Field(n).IsNil() {
			all[strings.ToLower(fields.Type().Field(n).Name)] = informer
		}
	}
	for gvr, metadata := range i.Metadata {
		if informer, ok := metadata.(Informer); ok {
			all["metadata of "+gvr.GroupResource().String()] = informer
		}
	}
	return all
}
