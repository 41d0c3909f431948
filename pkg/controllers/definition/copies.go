package definition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// copies are those of schemas that bindings use. A copy is made before the status of a binding names it, and deleted
// when no binding names it:
//
//	no copy --bind: create--> copy, named by nobody --bind: status--> named
//	named --the last binding goes--> named by nobody --release--> no copy
//
// A leader that is killed leaves each of these states to the next one, which finds it in its sweep. Two things could
// delete a copy that a binding has just come to name: a worker beside the one that binds, which the lock keeps out, and
// a cache that is late. It lacks nothing that leaders before this one wrote, which is asked once in a term; and what
// this one wrote is kept until the cache shows it. Writes of an earlier leader that come late are refused by the fence.
type copies struct {
	// binding is read-locked from before a copy is made until the status that names it is written and noted.
	binding sync.RWMutex
	// caughtUp says that the cache has shown what was written before this term.
	caughtUp atomic.Bool

	mu sync.Mutex
	// named are the copies that a status names which this term has written and the cache has not shown yet.
	named map[clusters.Key]namedCopies
	// deleted are the uids of copies that this term has deleted, by name, until the cache shows that they have
	// gone.
	deleted map[string]types.UID
}

type namedCopies struct {
	version string
	names   []string
}

// makeCopy makes the copy of a schema. It may be there already, if another logical cluster has bound the same schema.
func (c *controller) makeCopy(ctx context.Context, s resourceSchema, opts metav1.CreateOptions) error {
	of := copyOf(s)
	out := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: of.Name, Annotations: map[string]string{
			apisv1alpha1.AnnotationSchemaClusterKey: clusters.KeyOf(s).Cluster.String(), apisv1alpha1.AnnotationSchemaNameKey: s.Name,
		}},
		Spec: *s.Spec.DeepCopy(),
	}
	if approval, ok := s.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		out.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] = approval
	}
	_, err := c.clients.Schemas.Create(clusters.With(ctx, of.Cluster), out, opts)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep schema %s: %w", s.Name, err)
	}
	return nil
}

// has reports whether a copy is there for as long as the caller read-locks binding: the cache shows it, and this term
// has not deleted it.
func (c *controller) has(of clusters.Key) bool {
	s, ok := c.informers.APIResourceSchemas.Get(of)
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok && c.deleted[of.Name] != s.UID
}

// noteDeleted notes that a copy with a uid was deleted; empty: that the cache shows it no more.
func (c *copies) noteDeleted(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uid == "" {
		delete(c.deleted, name)
		return
	}
	if c.deleted == nil {
		c.deleted = map[string]types.UID{}
	}
	c.deleted[name] = uid
}

// wroteBinding notes which copies a status names that was written.
func (c *copies) wroteBinding(of clusters.Key, b binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named == nil {
		c.named = map[clusters.Key]namedCopies{}
	}
	now := namedCopies{version: b.ResourceVersion}
	for n := range b.Status.BoundResources {
		now.names = append(now.names, clusters.BoundSchemaKey(&b.Status.BoundResources[n]).Name)
	}
	c.named[of] = now
}

// behind reports whether the cache has not got what this term has written of a binding.
func (c *copies) behind(b binding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	written, ok := c.named[clusters.KeyOf(b)]
	return ok && olderThan(b, written.version)
}

func olderThan(obj metav1.Object, version string) bool {
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), version)
	return err == nil && order < 0
}

// inUse reports whether a binding names a copy, by the cache or by what was written since.
func (c *controller) inUse(copyName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, written := range c.named {
		b, ok := c.informers.APIBindings.Get(of)
		// what is not there any more has gone: it was there when its status was written
		if !ok || !olderThan(b, written.version) {
			delete(c.named, of)
			continue
		}
		if slices.Contains(written.names, copyName) {
			return true
		}
	}
	return len(c.informers.APIBindings.ByIndex(controllers.ByBoundSchema, copyName)) > 0
}

// release deletes a copy that no binding names.
func (c *controller) release(ctx context.Context, of clusters.Key) error {
	s, ok := c.informers.APIResourceSchemas.Get(of)
	if !ok {
		c.noteDeleted(of.Name, "")
		return nil
	}
	if c.inUse(of.Name) {
		return nil
	}
	if !c.caughtUp.Load() {
		if err := c.informers.LiveBindings(ctx, c.metadata); err != nil {
			return fmt.Errorf("who uses schema %s: %w", of.Name, err)
		}
		c.caughtUp.Store(true)
	}
	c.binding.Lock()
	defer c.binding.Unlock()
	if c.inUse(of.Name) {
		return nil
	}
	c.noteDeleted(of.Name, s.UID) // also if nobody knows what has come of it
	err := c.clients.Schemas.Delete(ctx, of.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
	return unlessChanged(err)
}
