package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/content"
)

// collect deletes an object whose owners are all gone, or removes the owners that are gone from its references. The
// object's own dependents come from the informers. If these are stale, the object goes before its dependents and not
// after them, as upstream.
func (c *controller) collect(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	owners, err := c.classify(ctx, n, obj)
	if err != nil {
		return err
	}
	dependents := c.dependents(n)
	v := judge(obj, owners, len(dependents) > 0, c.anyWaits(dependents))
	if len(v.unlink) > 0 {
		return c.patch(ctx, n, obj, map[string]any{"ownerReferences": unlinked(obj, v.unlink...)})
	}
	if !v.remove {
		return nil
	}
	if v.unblock {
		// The informer's event brings the object back here, with nothing left to unblock.
		if refs := unblocked(obj); anyBlocks(obj) {
			return c.patch(ctx, n, obj, map[string]any{"ownerReferences": refs})
		}
	}
	klog.FromContext(ctx).V(2).Info("Deleting an object whose owners are gone", "object", n, "policy", v.policy)
	return c.client(n).Delete(ctx, obj.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion},
		PropagationPolicy: &v.policy,
	})
}

// classify looks up each owner. It asks the server unless the cache has an owner that keeps obj.
func (c *controller) classify(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) ([]ownership, error) {
	owners := make([]ownership, 0, len(obj.OwnerReferences))
	for _, ref := range obj.OwnerReferences {
		at, ok := c.locate(obj, ref)
		if !ok {
			owners = append(owners, ownership{ref, c.unlocated(n, obj, ref)})
			continue
		}
		owner, ok := c.cached(at)
		if !ok || owner.UID != ref.UID || waits(owner) {
			var err error
			owner, err = c.client(at).Get(ctx, ref.Name, metav1.GetOptions{})
			if isAbsent(err) {
				owners = append(owners, ownership{ref, absent})
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look up owner %s: %w", at, err)
			}
		}
		state := solid
		switch {
		case owner.UID != ref.UID:
			state = absent
		case waits(owner):
			state = waiting
		}
		owners = append(owners, ownership{ref, state})
	}
	return owners, nil
}

// isAbsent reports whether the server has said that there is no such object. Of a resource that it does not serve,
// because a definition is about to change, it says something like that, too.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// await handles an object that is being deleted in the foreground. It queues the object's dependents. When no dependent
// is left that blocks the deletion, it removes the finalizer.
func (c *controller) await(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	blocked := false
	for _, d := range c.dependents(n) {
		dependent, ok := c.cached(d)
		if !ok || dependent.UID != d.uid {
			continue
		}
		blocked = blocked || blocks(dependent, n.uid)
		if dependent.DeletionTimestamp == nil {
			c.Loop.Add(d)
		}
	}
	if blocked {
		return nil
	}
	err := c.eachDependent(ctx, obj, func(_ node, dependent *metav1.PartialObjectMetadata) error {
		blocked = blocked || blocks(dependent, n.uid)
		return nil
	})
	if err != nil || blocked {
		return err // the informers will deliver the dependents that they have not shown yet
	}
	return c.patch(ctx, n, obj, map[string]any{"finalizers": without(obj.Finalizers, metav1.FinalizerDeleteDependents)})
}

// orphan removes an object that is being deleted from the references of its dependents, and then removes the finalizer.
// The versions of the dependents do not show whether the object still wants this, so it is read from the server first.
func (c *controller) orphan(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	live, err := c.client(n).Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if live.UID != obj.UID || live.ResourceVersion != obj.ResourceVersion {
		return nil // the informer has delivered the change, or will, and queues the node again
	}
	err = c.eachDependent(ctx, obj, func(d node, dependent *metav1.PartialObjectMetadata) error {
		return controllers.IgnoreNotFound(c.patch(ctx, d, dependent, map[string]any{"ownerReferences": unlinked(dependent, n.uid)}))
	})
	if err != nil {
		return err
	}
	return c.patch(ctx, n, obj, map[string]any{"finalizers": without(obj.Finalizers, metav1.FinalizerOrphanDependents)})
}

// eachDependent visits all objects that refer to owner, by live lists: the end of an owner must not depend on caches.
// Only objects in its own namespace can refer to a namespaced owner.
func (c *controller) eachDependent(ctx context.Context, owner *metav1.PartialObjectMetadata, visit func(node, *metav1.PartialObjectMetadata) error) error {
	resources, err := c.resourcesIn(ctx, clusters.KeyOf(owner).Cluster)
	if err != nil {
		return err
	}
	for _, r := range resources {
		if owner.Namespace != "" && !r.Namespaced {
			continue
		}
		var dependents []*metav1.PartialObjectMetadata
		err := content.Each(ctx, c.metadata.Resource(r.GVR).Namespace(owner.Namespace), func(obj *metav1.PartialObjectMetadata) {
			if refersTo(obj, owner.UID) {
				dependents = append(dependents, obj)
			}
		})
		if err != nil {
			return fmt.Errorf("dependents in %s: %w", r.GVR.GroupResource(), err)
		}
		for _, obj := range dependents {
			if err := visit(c.nodeOf(r, obj), obj); err != nil {
				return fmt.Errorf("dependent %s %s: %w", r.GVR.GroupResource(), obj.Name, err)
			}
		}
	}
	return nil
}

// patch changes fields of an object's metadata if the object still has the uid and resourceVersion that were decided
// on.
func (c *controller) patch(ctx context.Context, n node, obj *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"] = obj.UID
	fields["resourceVersion"] = obj.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.client(n).Patch(ctx, obj.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: name})
	return err
}

func (c *controller) client(n node) metadata.ResourceInterface {
	resource, _ := c.served(n)
	return c.metadata.Resource(resource).Namespace(n.key.Namespace)
}

func (c *controller) anyWaits(nodes []node) bool {
	for _, n := range nodes {
		if obj, ok := c.cached(n); ok && obj.UID == n.uid && waits(obj) {
			return true
		}
	}
	return false
}

func anyBlocks(obj *metav1.PartialObjectMetadata) bool {
	for _, ref := range obj.OwnerReferences {
		if blocks(obj, ref.UID) {
			return true
		}
	}
	return false
}
