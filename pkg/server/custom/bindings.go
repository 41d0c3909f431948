package custom

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis/kcpapis"
)

type binding = *apisv1alpha2.APIBinding

// LiveBindings reads what logical clusters have bound from storage.
type LiveBindings struct {
	// List returns the bindings of a cluster.
	List func(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error)
	// Schema returns a schema.
	Schema func(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// Bindings are the definitions that logical clusters have bound: what the status of their APIBindings says, by the
// copies of schemas in clusters.BoundSchemas. These never change, and are there as long as a binding names them.
type Bindings struct {
	informers controllers.Informers
	contents  *Contents
	live      LiveBindings
	answers   answers

	mu sync.Mutex
	// read are the contents of schemas that were read, by the schemas' names.
	read map[string]weak.Pointer[Content]
}

// NewBindings returns the definitions that informers have.
func NewBindings(informers controllers.Informers, contents *Contents, live LiveBindings) *Bindings {
	return &Bindings{informers: informers, contents: contents, live: live, answers: newAnswers(), read: map[string]weak.Pointer[Content]{}}
}

// Run ends watches whose bindings change, until ctx ends.
func (b *Bindings) Run(ctx context.Context) {
	defer b.informers.APIBindings.Follow(clusters.Range{}, func(old, new binding) {
		for _, of := range []binding{old, new} {
			b.refresh(of)
		}
	})()
	defer b.informers.APIResourceSchemas.Follow(clusters.Range{}, func(old, new *apisv1alpha1.APIResourceSchema) {
		if new == nil {
			b.forget(old.Name)
			return
		}
		for _, of := range b.informers.APIBindings.ByIndex(controllers.ByBoundSchema, new.Name) {
			b.refresh(of)
		}
	})()
	<-ctx.Done()
}

// Definition implements Source.
func (b *Bindings) Definition(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	return first(ctx, cluster, resource, b)
}

// cached implements part.
func (b *Bindings) cached(cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	return b.find(b.informers.APIBindings.ByIndex(controllers.ByBound, controllers.BoundValue(cluster, resource)), resource, b.informers.BoundSchema)
}

// stored implements part.
func (b *Bindings) stored(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	all, err := b.live.List(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read the bindings of %s: %w", cluster, err)
	}
	var failure error
	d, err := b.find(all, resource, func(r *apisv1alpha2.BoundAPIResource) (*apisv1alpha1.APIResourceSchema, bool) {
		if s, ok := b.informers.BoundSchema(r); ok {
			return s, true
		}
		key := clusters.BoundSchemaKey(r)
		s, err := b.live.Schema(ctx, key.Cluster, key.Name)
		if err != nil {
			failure = fmt.Errorf("read schema %s: %w", key.Name, err)
		}
		return s, err == nil
	})
	if err == nil {
		err = failure
	}
	return d, err
}

// find returns what one of the bindings says of a resource. Nil: none says anything, or the schema is not found.
func (b *Bindings) find(
	all []binding, resource schema.GroupResource, schemaOf func(*apisv1alpha2.BoundAPIResource) (*apisv1alpha1.APIResourceSchema, bool),
) (*Definition, error) {
	for _, of := range all {
		r := bindsTo(of, resource)
		if r == nil {
			continue
		}
		if s, ok := schemaOf(r); ok {
			return b.show(of, resource, s)
		}
	}
	return nil, nil
}

func bindsTo(of binding, resource schema.GroupResource) *apisv1alpha2.BoundAPIResource {
	n := slices.IndexFunc(of.Status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource
	})
	if n < 0 {
		return nil
	}
	return &of.Status.BoundResources[n]
}

// Definitions implements Source.
func (b *Bindings) Definitions(cluster logicalcluster.Name) (all []*Definition) {
	for _, of := range b.informers.APIBindings.List(cluster) {
		for _, r := range of.Status.BoundResources {
			if d, err := b.find([]binding{of}, schema.GroupResource{Group: r.Group, Resource: r.Resource}, b.informers.BoundSchema); d != nil && err == nil {
				all = append(all, d)
			}
		}
	}
	return inOrder(all)
}

// Everywhere implements Source.
func (b *Bindings) Everywhere(resource schema.GroupResource) Everywhere {
	return b.everywhere(resource, false)
}

// everywhere implements part.
func (b *Bindings) everywhere(resource schema.GroupResource, keep bool) Everywhere {
	return b.answers.all(resource.String(), keep, func(set func(logicalcluster.Name, *Content)) {
		for _, of := range b.informers.APIBindings.ByIndex(controllers.ByResource, resource.String()) {
			if c := b.contentIn(of, resource); c != nil {
				set(clusters.KeyOf(of).Cluster, c)
			}
		}
	})
}

// contentIn returns what a binding says of a resource: nil, if the cache lacks the schema.
func (b *Bindings) contentIn(of binding, resource schema.GroupResource) *Content {
	r := bindsTo(of, resource)
	if r == nil {
		return nil
	}
	s, ok := b.informers.BoundSchema(r)
	if !ok {
		return nil
	}
	d, err := b.showLocked(of, resource, s)
	if err != nil {
		return nil
	}
	return d.Content
}

// show returns what a binding says of a resource, or what a later state of it says that was shown already.
func (b *Bindings) show(of binding, resource schema.GroupResource, s *apisv1alpha1.APIResourceSchema) (*Definition, error) {
	b.answers.mu.Lock()
	defer b.answers.mu.Unlock()
	return b.showLocked(of, resource, s)
}

func (b *Bindings) showLocked(of binding, resource schema.GroupResource, s *apisv1alpha1.APIResourceSchema) (*Definition, error) {
	key := clusters.Key{Cluster: clusters.KeyOf(of).Cluster, Name: resource.String()}
	return b.answers.show(key, of, apisv1alpha2.Resource("apibindings"), func() (*Definition, error) {
		content, err := b.contentOf(s)
		if err != nil {
			return nil, err
		}
		return &Definition{
			Content: content, Terminating: of.DeletionTimestamp != nil,
			again: func(ctx context.Context) (*Definition, error) { return b.stored(ctx, key.Cluster, resource) },
		}, nil
	})
}

// contentOf returns the content of a schema.
func (b *Bindings) contentOf(s *apisv1alpha1.APIResourceSchema) (*Content, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.read[s.Name].Value(); c != nil {
		return c, nil
	}
	d, err := kcpapis.Definition(s)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", s.Name, err)
	}
	c, err := b.contents.Of(&d.Spec, &d.Spec.Names)
	if err == nil {
		b.read[s.Name] = weak.Make(c)
	}
	return c, err
}

func (b *Bindings) forget(name string) {
	b.mu.Lock()
	delete(b.read, name)
	b.mu.Unlock()
}

// refresh looks at what a binding says, or has said.
func (b *Bindings) refresh(of binding) {
	if of == nil {
		return
	}
	for _, r := range of.Status.BoundResources {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		key := clusters.Key{Cluster: clusters.KeyOf(of).Cluster, Name: resource.String()}
		b.answers.refresh(key, func() *Content {
			for _, now := range b.informers.APIBindings.ByIndex(controllers.ByBound, controllers.BoundValue(key.Cluster, resource)) {
				if c := b.contentIn(now, resource); c != nil {
					return c
				}
			}
			return nil
		})
	}
}

var _ part = (*Bindings)(nil)
