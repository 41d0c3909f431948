package definition

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// bind binds what a binding asks for. The copies of schemas are made before the status names them.
func (c *controller) bind(ctx context.Context, of clusters.Key) error {
	b, ok := c.informers.APIBindings.Get(of)
	if ok && b.DeletionTimestamp != nil {
		return c.unbind(ctx, b)
	}
	defer c.names.lock(of.Cluster)()
	if b, ok = c.informers.APIBindings.Get(of); !ok {
		c.wroteBinding(of, "")
		return nil
	}
	if b.DeletionTimestamp != nil || c.behind(b) {
		return nil // if there is something to do, an event queues it
	}
	d := c.decide(b)
	if d.lacking || len(d.schemas) == 0 && equality.Semantic.DeepEqual(d.out.Status, b.Status) {
		return nil
	}
	if d.names {
		if err := c.groups.check(ctx, c.metadata, of.Cluster); err != nil {
			return fmt.Errorf("names for binding %s: %w", of.Name, err)
		}
	}
	return c.write(ctx, of, d)
}

func (c *controller) write(ctx context.Context, of clusters.Key, d decision) error {
	var errs []error
	for _, s := range d.schemas {
		if c.has(copyOf(s)) {
			continue // to make it again costs its validation
		}
		errs = append(errs, c.makeCopy(ctx, s, metav1.CreateOptions{FieldManager: name}))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	out, err := c.clients.Bindings.UpdateStatus(ctx, d.out, metav1.UpdateOptions{FieldManager: name})
	if err == nil {
		c.wroteBinding(of, out.ResourceVersion)
		errs = nil
		for _, s := range d.schemas {
			errs = append(errs, c.keep(ctx, s))
		}
		return errors.Join(errs...)
	}
	for _, s := range d.schemas { // they may be of use to nobody now
		c.Add(key{what: aCopy, of: copyOf(s)})
	}
	if err = unlessChanged(err); err != nil {
		return fmt.Errorf("status of binding %s: %w", of.Name, err)
	}
	return nil
}

// copyOf returns the key of the copy of a schema.
func copyOf(s resourceSchema) clusters.Key {
	return clusters.BoundSchemaKeyOf(string(s.UID), s.Spec.Names.Plural, s.Spec.Group)
}
