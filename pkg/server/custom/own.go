package custom

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

type crd = *apiextensionsv1.CustomResourceDefinition

// Live reads a CustomResourceDefinition from storage.
type Live func(ctx context.Context, cluster logicalcluster.Name, name string) (*apiextensionsv1.CustomResourceDefinition, error)

// Own are the definitions that logical clusters have themselves: their CustomResourceDefinitions.
type Own struct {
	informer *clusters.Informer[crd]
	contents *Contents
	live     Live
	answers  answers
}

// NewOwn returns the definitions that an informer with the index controllers.ByName has.
func NewOwn(informer *clusters.Informer[crd], contents *Contents, live Live) *Own {
	return &Own{informer: informer, contents: contents, live: live, answers: newAnswers()}
}

// Run ends watches whose definitions change, until ctx ends.
func (o *Own) Run(ctx context.Context) {
	defer o.informer.Follow(clusters.Range{}, func(old, new crd) {
		if new == nil {
			new = old
		}
		o.refresh(clusters.KeyOf(new))
	})()
	<-ctx.Done()
}

// Definition implements Source.
func (o *Own) Definition(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	return first(ctx, cluster, resource, o)
}

// cached implements part.
func (o *Own) cached(cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	if d, ok := o.informer.Get(clusters.Key{Cluster: cluster, Name: resource.String()}); ok && established(d) {
		return o.show(d)
	}
	return nil, nil
}

// stored implements part.
func (o *Own) stored(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	d, err := o.live(ctx, cluster, resource.String())
	if apierrors.IsNotFound(err) || err == nil && !established(d) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", resource, err)
	}
	return o.show(d)
}

// Definitions implements Source. It leaves out definitions that cannot be encoded, which storage does not have.
func (o *Own) Definitions(cluster logicalcluster.Name) []*Definition {
	var all []*Definition
	for _, d := range o.informer.List(cluster) {
		if !established(d) {
			continue
		}
		if definition, err := o.show(d); err == nil {
			all = append(all, definition)
		}
	}
	return inOrder(all)
}

// Everywhere implements Source.
func (o *Own) Everywhere(resource schema.GroupResource) Everywhere {
	return o.everywhere(resource, false)
}

// everywhere implements part.
func (o *Own) everywhere(resource schema.GroupResource, keep bool) Everywhere {
	return o.answers.all(resource.String(), keep, func(set func(logicalcluster.Name, *Content)) {
		for _, d := range o.informer.ByIndex(controllers.ByName, resource.String()) {
			set(clusters.KeyOf(d).Cluster, o.contentOf(d))
		}
	})
}

// contentOf returns nil for a definition that is not served. The caller holds the lock of shown.
func (o *Own) contentOf(d crd) *Content {
	if !established(d) {
		return nil
	}
	definition, err := o.showLocked(d)
	if err != nil {
		return nil
	}
	return definition.Content
}

// established reports whether a definition is served. One that has been established stays so.
func established(d crd) bool { return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) }

// show returns what a definition says, or what a later state of it says that was shown already.
func (o *Own) show(d crd) (*Definition, error) {
	o.answers.mu.Lock()
	defer o.answers.mu.Unlock()
	return o.showLocked(d)
}

func (o *Own) showLocked(d crd) (*Definition, error) {
	key := clusters.KeyOf(d)
	return o.answers.show(key, d, apiextensionsv1.Resource("customresourcedefinitions"), func() (*Definition, error) {
		content, err := o.contents.Of(&d.Spec, &d.Status.AcceptedNames)
		if err != nil {
			return nil, err
		}
		return &Definition{
			Content: content, Terminating: d.DeletionTimestamp != nil || apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating),
			again: func(ctx context.Context) (*Definition, error) {
				return o.stored(ctx, key.Cluster, schema.ParseGroupResource(key.Name))
			},
		}, nil
	})
}

// refresh looks at a definition that has changed.
func (o *Own) refresh(key clusters.Key) {
	o.answers.refresh(key, func() *Content {
		if d, ok := o.informer.Get(key); ok {
			return o.contentOf(d)
		}
		return nil
	})
}

var _ part = (*Own)(nil)
