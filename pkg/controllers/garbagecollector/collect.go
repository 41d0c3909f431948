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

	"github.com/regent-project/regent/pkg/controllers/content"
)

// collect deletes an object that no owner holds any more, or frees it from the owners that are gone. Who depends on the
// object itself is taken from the informers: if they are late it goes before its dependents, not after, as upstream.
func (c *controller) collect(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	owners, err := c.classify(ctx, obj)
	if err != nil {
		return err
	}
	dependents := c.graph.of(n.identity())
	v := judge(obj, owners, len(dependents) > 0, c.anyWaits(dependents))
	if len(v.unlink) > 0 {
		return c.patch(ctx, n, obj, map[string]any{"ownerReferences": unlinked(obj, v.unlink...)})
	}
	if !v.remove {
		return nil
	}
	if v.unblock {
		// It comes again when the informer brings it, with nothing left to unblock.
		if refs := unblocked(obj); anyBlocks(obj) {
			return c.patch(ctx, n, obj, map[string]any{"ownerReferences": refs})
		}
	}
	klog.FromContext(ctx).V(2).Info("Deleting an object whose owners are gone", "resource", n.resource, "object", n.key, "policy", v.policy)
	return c.getter(n).Delete(ctx, obj.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion},
		PropagationPolicy: &v.policy,
	})
}

// classify looks each owner up, at the server unless the cache shows one for whose sake obj stays.
func (c *controller) classify(ctx context.Context, obj *metav1.PartialObjectMetadata) ([]ownership, error) {
	owners := make([]ownership, 0, len(obj.OwnerReferences))
	for _, ref := range obj.OwnerReferences {
		r, key, ok := c.locate(obj, ref)
		if !ok {
			owners = append(owners, ownership{ref, unknowable})
			continue
		}
		owner, ok := c.informers[r.GVR].Get(key)
		if !ok || owner.UID != ref.UID || waits(owner) {
			var err error
			owner, err = c.metadata.Resource(r.GVR).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				owners = append(owners, ownership{ref, absent})
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look up owner %s %s: %w", r.GVR.GroupResource(), key, err)
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

// await brings on an object that is being deleted in the foreground: its dependents are looked at, each by its own
// node, and when none is left that blocks it, it is let go.
func (c *controller) await(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	blocked := false
	for _, d := range c.graph.of(n.identity()) {
		dependent, ok := c.informers[d.resource].Get(d.key)
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
		return err // the informers will bring what they have not shown yet
	}
	return c.patch(ctx, n, obj, map[string]any{"finalizers": without(obj.Finalizers, metav1.FinalizerDeleteDependents)})
}

// orphan frees all dependents from an object that is being deleted, and then lets it go. The dependents' versions say
// nothing of whether they are still to be freed, so the server is asked first.
func (c *controller) orphan(ctx context.Context, n node, obj *metav1.PartialObjectMetadata) error {
	live, err := c.getter(n).Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if live.UID != obj.UID || live.ResourceVersion != obj.ResourceVersion {
		return nil // the informer has brought what changed, or will, and with it the node
	}
	err = c.eachDependent(ctx, obj, func(d node, dependent *metav1.PartialObjectMetadata) error {
		err := c.patch(ctx, d, dependent, map[string]any{"ownerReferences": unlinked(dependent, n.uid)})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.patch(ctx, n, obj, map[string]any{"finalizers": without(obj.Finalizers, metav1.FinalizerOrphanDependents)})
}

// eachDependent visits all objects that refer to owner, by live lists: what an owner's end depends on is not left to
// caches. A namespaced owner can only be referred to from its namespace.
func (c *controller) eachDependent(ctx context.Context, owner *metav1.PartialObjectMetadata, visit func(node, *metav1.PartialObjectMetadata) error) error {
	for _, r := range c.resources {
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
			if err := visit(nodeOf(r.GVR, obj), obj); err != nil {
				return fmt.Errorf("dependent %s %s: %w", r.GVR.GroupResource(), obj.Name, err)
			}
		}
	}
	return nil
}

// patch changes fields of an object's metadata, provided that it is still the object, and the version, decided on.
func (c *controller) patch(ctx context.Context, n node, obj *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"] = obj.UID
	fields["resourceVersion"] = obj.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.getter(n).Patch(ctx, obj.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: name})
	return err
}

func (c *controller) getter(n node) metadata.ResourceInterface {
	return c.metadata.Resource(n.resource).Namespace(n.key.Namespace)
}

func (c *controller) anyWaits(nodes []node) bool {
	for _, n := range nodes {
		if obj, ok := c.informers[n.resource].Get(n.key); ok && obj.UID == n.uid && waits(obj) {
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
