package controllers

import (
	"cmp"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
)

// The indexes of Informers.APIBindings: by the export that they name (the Key.String of it), by its shard if that is
// another one, by the copies of schemas that they use (their names), by what they have bound in each cluster
// (BoundValue), and in all clusters (the resource).
const (
	ByExport      = "export"
	ByBoundSchema = "schema"
	ByExportShard = "export-shard"
	ByBound       = "bound"
	ByResource    = "resource"
)

// BoundValue returns the value of a resource in ByBound.
func BoundValue(cluster logicalcluster.Name, resource schema.GroupResource) string {
	return cluster.String() + "|" + resource.String()
}

// ExportOf returns the key of the export of a binding. Its cluster is empty if admission did not find one.
func ExportOf(b *apisv1alpha2.APIBinding) clusters.Key {
	key := clusters.Key{Cluster: logicalcluster.Name(b.Annotations[clusters.ExportClusterAnnotation])}
	if e := b.Spec.Reference.Export; e != nil {
		key.Name = e.Name
	}
	return key
}

// ExportShardOf returns the shard of the export of a binding. It is empty if that is the binding's own.
func ExportShardOf(b *apisv1alpha2.APIBinding) string {
	return b.Annotations[clusters.ExportShardAnnotation]
}

// BindingIndexers returns the indexes that Informers.APIBindings has.
func BindingIndexers() map[string]func(*apisv1alpha2.APIBinding) []string {
	indexers := OwnerIndexers[*apisv1alpha2.APIBinding]()
	indexers[ByExport] = func(b *apisv1alpha2.APIBinding) []string { return []string{ExportOf(b).String()} }
	indexers[ByExportShard] = func(b *apisv1alpha2.APIBinding) []string {
		if shard := ExportShardOf(b); shard != "" {
			return []string{shard}
		}
		return nil
	}
	each := func(value func(*apisv1alpha2.APIBinding, *apisv1alpha2.BoundAPIResource) string) func(*apisv1alpha2.APIBinding) []string {
		return func(b *apisv1alpha2.APIBinding) (values []string) {
			for n := range b.Status.BoundResources {
				values = append(values, value(b, &b.Status.BoundResources[n]))
			}
			return values
		}
	}
	resource := func(r *apisv1alpha2.BoundAPIResource) schema.GroupResource {
		return schema.GroupResource{Group: r.Group, Resource: r.Resource}
	}
	indexers[ByBoundSchema] = each(func(_ *apisv1alpha2.APIBinding, r *apisv1alpha2.BoundAPIResource) string {
		return clusters.BoundSchemaKey(r).Name
	})
	indexers[ByBound] = each(func(b *apisv1alpha2.APIBinding, r *apisv1alpha2.BoundAPIResource) string {
		return BoundValue(logicalcluster.From(b), resource(r))
	})
	indexers[ByResource] = each(func(_ *apisv1alpha2.APIBinding, r *apisv1alpha2.BoundAPIResource) string { return resource(r).String() })
	return indexers
}

// BoundSchema returns the copy of the schema that a binding uses, as the cache shows it.
func (i Informers) BoundSchema(r *apisv1alpha2.BoundAPIResource) (*apisv1alpha1.APIResourceSchema, bool) {
	return i.APIResourceSchemas.Get(clusters.BoundSchemaKey(r))
}

// boundResources returns the custom resources that a binding has bound. It is not ok if the cache lacks one of the
// schemas.
func (i Informers) boundResources(b *apisv1alpha2.APIBinding) (all []Resource, ok bool) {
	ok = true
	for n := range b.Status.BoundResources {
		s, there := i.BoundSchema(&b.Status.BoundResources[n])
		if !there {
			ok = false
			continue
		}
		all = append(all, ResourceOfSchema(s))
	}
	return all, ok
}

// ResourceOfSchema returns the custom resource that a schema describes, in the version in which its objects are stored.
func ResourceOfSchema(s *apisv1alpha1.APIResourceSchema) Resource {
	out := Resource{
		GVR:  schema.GroupVersionResource{Group: s.Spec.Group, Resource: s.Spec.Names.Plural},
		Kind: s.Spec.Names.Kind, Namespaced: s.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	for _, v := range s.Spec.Versions {
		if v.Storage {
			out.GVR.Version = v.Name
		}
	}
	return out
}

func sorted(all []Resource) []Resource {
	slices.SortFunc(all, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.GVR.Group, b.GVR.Group), cmp.Compare(a.GVR.Resource, b.GVR.Resource))
	})
	return all
}
