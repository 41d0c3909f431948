// Package definition accepts the names of CustomResourceDefinitions, establishes them, and deletes their objects when
// they go. In Kubernetes these are three controllers, which wait for each other, and for replicas that have not heard
// yet. Here they are one, and replicas look into storage.
//
// It also binds what APIBindings ask for, since both compete for names: within a logical cluster each name of an API
// group belongs to one definition, or to one bound resource.
package definition

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "definition"
	workers = 4
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type definition = *apiextensionsv1.CustomResourceDefinition

// controller reconciles the definitions of an API group in a logical cluster together, since they compete for names;
// each binding; each copy of a schema; and each export of another shard that is bound.
type controller struct {
	*loop.Loop[key]
	informers   controllers.Informers
	definitions *clusters.Informer[definition]
	clients     controllers.Clients
	metadata    metadata.Interface
	groups      groups
	// names is held while names of a logical cluster are given: the ledgers of its groups are used by one goroutine
	// at a time.
	names  stripes
	others *controllers.Shards
	offers offers
	homes  homes
	// shard is the name of this one.
	shard string
	copies
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		informers: deps.Informers, definitions: deps.Informers.Definitions, clients: deps.Clients, metadata: deps.Clients.Metadata,
		groups: groups{informers: deps.Informers}, others: deps.Others(), shard: deps.Shard,
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.By(key.chargedTo)
	c.watch()
	return c, nil
}

// changed returns the group of a definition if it has to be reconciled, whether the definition has changed or the sweep
// looks at it. A definition that is there, has all that it wants and stays concerns nobody. So the sweep looks at each
// definition once, however many are in its group.
func (c *controller) changed(d definition) []key {
	of := clusters.KeyOf(d)
	group := clusters.Key{Cluster: of.Cluster, Name: d.Spec.Group}
	noted := c.groups.change(group, of.Name)
	if now, there := c.definitions.Get(of); there && !noted && settled(now) && !leaving(now) {
		return nil
	}
	return append(c.lacking(of.Cluster), key{what: aGroup, of: group})
}

func (c *controller) reconcile(ctx context.Context, k key) error {
	ctx = clusters.With(ctx, k.of.Cluster)
	switch k.what {
	case aBinding:
		return c.bind(ctx, k.of)
	case aCopy:
		return c.release(ctx, k.of)
	case anOffer:
		return c.pull(ctx, k)
	case aShard:
		return c.listen(ctx, k)
	case aHome:
		return c.locate(ctx, k)
	}
	leaving, err := c.name(ctx, k.of)
	errs := []error{err}
	for _, d := range leaving {
		if err := c.finalize(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("delete the objects of %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

// name writes what the names of a group's definitions come to. It returns those that wait for their objects to be
// deleted. As long as the cache lacks what was bound it gives no names: its next event queues the group.
func (c *controller) name(ctx context.Context, of clusters.Key) (leaving []definition, err error) {
	defer c.names.lock(of.Cluster)()
	ledger := c.groups.enter(of)
	defer c.groups.leave(of)
	for name := range ledger.leaving {
		leaving = append(leaving, ledger.known[name])
	}
	bound, known := c.holders(of, "")
	if !known {
		return leaving, nil
	}
	ledger.hold(bound)
	due := ledger.due()
	if len(due) == 0 {
		return leaving, nil
	}
	if err := c.groups.check(ctx, c.metadata, of.Cluster); err != nil {
		return leaving, fmt.Errorf("name definitions of group %s: %w", of.Name, err)
	}
	var errs []error
	for _, d := range due {
		out, err := c.clients.Definitions.UpdateStatus(ctx, d, metav1.UpdateOptions{FieldManager: name})
		if err == nil {
			ledger.wrote(out)
		} else if err = unlessChanged(err); err != nil {
			errs = append(errs, fmt.Errorf("name %s: %w", d.Name, err))
		}
	}
	return leaving, errors.Join(errs...)
}

// unlessChanged returns nil if an object was changed or deleted meanwhile: the informer has delivered that, or will,
// and queues the group again.
func unlessChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

var _ controllers.Reporter = (*controller)(nil)
