package definition

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// copies are those of schemas that bindings use. A copy is made before the status of a binding names it, and deleted
// when no binding names it:
//
//	no copy --bind: create--> copy, named by nobody --bind: status--> named
//	named --the last binding goes--> named by nobody --release--> unused --release--> no copy
//
// A leader that is killed leaves each of these states to the next one, which finds it in its sweep. Leaders of
// different ranges bind and release, and know nothing of each other. So a copy is deleted in two steps: first it is
// marked as unused, then it is asked again who uses it, of a cache that has all that was written until the mark was,
// and the deletion demands that nobody has changed the copy since. And a leader that has named a copy looks at it live:
// it takes the mark away, or makes the copy again. A status that was written before the mark is seen by the question;
// one that was written after it is followed by that look, before which the copy may be away for a moment.
type copies struct {
	// idle are those that no binding is seen to use.
	idle controllers.Waits[string]

	mu sync.Mutex
	// written are the versions of the bindings whose status this term has written, until the cache shows them.
	written map[clusters.Key]string
	// asked is the revision up to which the cache is known to have all bindings, and when that was asked.
	asked   string
	askedAt time.Time
}

// unusedAfter is how long a copy is left alone that no binding is seen to use: a leader that has just made it is about
// to name it.
const unusedAfter = time.Second

// askAgain is the shortest time between two questions, each of which takes a list of all bindings: copies that are
// marked meanwhile share one.
const askAgain = time.Second

// makeCopy makes the copy of a schema. It may be there already, if another logical cluster has bound the same schema.
func (c *controller) makeCopy(ctx context.Context, s resourceSchema, opts metav1.CreateOptions) error {
	return c.clients.MakeSchemaCopy(ctx, controllers.SchemaCopyOf(s, string(s.UID)), opts)
}

// has reports whether the cache shows a copy.
func (c *controller) has(of clusters.Key) bool {
	_, ok := c.informers.APIResourceSchemas.Get(of)
	return ok
}

// keep makes sure that the copy of a schema stays, after the status of a binding that names it was written.
func (c *controller) keep(ctx context.Context, s resourceSchema) error {
	return c.clients.KeepSchemaCopy(ctx, controllers.SchemaCopyOf(s, string(s.UID)), name)
}

func isUnused(s resourceSchema) bool { return s.Annotations[controllers.UnusedAnnotation] != "" }

// marked returns a copy with the mark or without it.
func marked(s resourceSchema, so bool) resourceSchema {
	out := s.DeepCopy()
	delete(out.Annotations, controllers.UnusedAnnotation)
	if so {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, controllers.UnusedAnnotation, "true")
	}
	return out
}

// wroteBinding notes that the status of a binding was written, at a version; empty: that the binding has gone.
func (c *copies) wroteBinding(of clusters.Key, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version == "" {
		delete(c.written, of)
		return
	}
	if c.written == nil {
		c.written = map[clusters.Key]string{}
	}
	c.written[of] = version
}

// behind reports whether the cache has not got what this term has written of a binding.
func (c *copies) behind(b binding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := clusters.KeyOf(b)
	version, ok := c.written[of]
	if ok && !isOlder(b.GetResourceVersion(), version) {
		delete(c.written, of)
		return false
	}
	return ok
}

// isOlder reports whether a version is older than another. It is not if they cannot be compared.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// inUse reports whether a binding names a copy, by the cache.
func (c *controller) inUse(copyName string) bool {
	return len(c.informers.APIBindings.ByIndex(controllers.ByBoundSchema, copyName)) > 0
}

// release takes the step that is next for a copy: nothing, the mark, or the deletion.
func (c *controller) release(ctx context.Context, of clusters.Key) error {
	s, ok := c.informers.APIResourceSchemas.Get(of)
	used := ok && c.inUse(of.Name)
	switch {
	case !ok, used && !isUnused(s):
		c.idle.Forget(of.Name)
		return nil
	case !used && !c.idle.Overdue(of.Name, unusedAfter):
		c.AddAfter(key{what: aCopy, of: of}, unusedAfter)
		return nil
	case used, !isUnused(s):
		_, err := c.clients.Schemas.Update(ctx, marked(s, !used), metav1.UpdateOptions{FieldManager: name})
		return unlessChanged(err)
	}
	if pause, err := c.ask(ctx, s.ResourceVersion); err != nil {
		return fmt.Errorf("who uses schema %s: %w", of.Name, err)
	} else if pause > 0 {
		c.AddAfter(key{what: aCopy, of: of}, pause)
		return nil
	}
	if c.inUse(of.Name) {
		return c.release(ctx, of)
	}
	return unlessChanged(c.clients.Schemas.Delete(ctx, of.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	}))
}

// ask makes sure that the cache has all that was written of bindings up to a revision. It returns how long that
// question has to wait, if it was asked just now.
func (c *controller) ask(ctx context.Context, revision string) (pause time.Duration, err error) {
	c.mu.Lock()
	asked, at := c.asked, c.askedAt
	c.mu.Unlock()
	if asked != "" && !isOlder(asked, revision) {
		return 0, nil
	}
	if pause := askAgain - time.Since(at); pause > 0 {
		return pause, nil
	}
	asked, err = c.informers.LiveBindings(ctx, c.metadata)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.askedAt = time.Now()
	if err == nil {
		c.asked = asked
	}
	return 0, err
}
