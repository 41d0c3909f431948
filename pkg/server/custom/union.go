package custom

import (
	"cmp"
	"context"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// part is a source among others.
type part interface {
	Source
	// cached is Definition by the caches alone. Nil: they have none.
	cached(cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error)
	// stored is Definition by storage alone.
	stored(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error)
	// everywhere is Everywhere. With keep its changes are told of also if it says nothing yet.
	everywhere(resource schema.GroupResource, keep bool) Everywhere
}

// Union are several sources of definitions. In a logical cluster each resource is in one of them at most: the
// controller that gives names sees to that. Storage is asked only if none of the caches has the resource.
type Union []part

// NewUnion returns what clusters define themselves, and what they have bound.
func NewUnion(own *Own, bound *Bindings) Union { return Union{own, bound} }

// Definition implements Source.
func (u Union) Definition(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	return first(ctx, cluster, resource, u...)
}

// first returns the first definition that one of the parts has, by the caches if they can tell.
func first(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource, parts ...part) (*Definition, error) {
	for _, p := range parts {
		if d, err := p.cached(cluster, resource); d != nil || err != nil {
			return d, err
		}
	}
	for _, p := range parts {
		if d, err := p.stored(ctx, cluster, resource); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// Definitions implements Source.
func (u Union) Definitions(cluster logicalcluster.Name) (all []*Definition) {
	for _, p := range u {
		all = append(all, p.Definitions(cluster)...)
	}
	// While a name changes hands one cache may be behind the other.
	return slices.CompactFunc(inOrder(all), func(a, b *Definition) bool { return a.spec.Group == b.spec.Group && a.names.Plural == b.names.Plural })
}

// inOrder sorts definitions by group and by resource.
func inOrder(all []*Definition) []*Definition {
	slices.SortStableFunc(all, func(a, b *Definition) int {
		return cmp.Or(cmp.Compare(a.spec.Group, b.spec.Group), cmp.Compare(a.names.Plural, b.names.Plural))
	})
	return all
}

// Everywhere implements Source.
func (u Union) Everywhere(resource schema.GroupResource) (all Everywhere) {
	some := slices.ContainsFunc(u, func(p part) bool { return len(p.everywhere(resource, false).Contents) > 0 })
	for _, p := range u {
		of := p.everywhere(resource, some)
		all.changed = append(all.changed, of.changed...)
		for _, c := range of.Contents {
			if !slices.Contains(all.Contents, c) {
				all.Contents = append(all.Contents, c)
			}
		}
	}
	return all
}

var _ Source = (Union)(nil)
