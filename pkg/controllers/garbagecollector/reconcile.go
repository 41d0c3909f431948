package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// ownerState is the state of the object that an owner reference names.
type ownerState int

const (
	// solid: the owner exists and keeps its dependents.
	solid ownerState = iota
	// waiting: the owner is being deleted in the foreground and waits for its dependents.
	waiting
	// absent: the server has said that the owner does not exist.
	absent
	// unknowable: the reference names a kind that is not served, or a namespaced owner for an object without a
	// namespace. As upstream, the collector never touches such objects.
	unknowable
)

// ownership is one owner reference with the state of its owner.
type ownership struct {
	ref   metav1.OwnerReference
	state ownerState
}

// verdict is what to do with an object that has owners. The zero value means nothing.
type verdict struct {
	// unlink are the owners to remove from its references.
	unlink []types.UID
	// unblock: its references must stop blocking the owners first. Otherwise the object and one of its dependents
	// would wait for each other.
	unblock bool
	// remove: delete the object. policy says what happens to its own dependents.
	remove bool
	policy metav1.DeletionPropagation
}

// judge decides about an object that is not being deleted. hasDependents says whether others refer to it,
// dependentsWait whether one of these is waiting for its own dependents.
func judge(obj *metav1.PartialObjectMetadata, owners []ownership, hasDependents, dependentsWait bool) verdict {
	count := map[ownerState]int{}
	var gone []types.UID
	for _, o := range owners {
		count[o.state]++
		if o.state == waiting || o.state == absent {
			gone = append(gone, o.ref.UID)
		}
	}
	switch {
	case len(owners) == 0, count[unknowable] > 0:
		return verdict{}
	case count[solid] > 0:
		return verdict{unlink: gone}
	case count[waiting] > 0 && hasDependents:
		return verdict{remove: true, policy: metav1.DeletePropagationForeground, unblock: dependentsWait}
	default:
		return verdict{remove: true, policy: policyOf(obj)}
	}
}

// policyOf returns the propagation policy that obj's finalizers ask for.
func policyOf(obj *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(obj.Finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(obj.Finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

// orphans reports whether obj is being deleted and orphans its dependents.
func orphans(obj *metav1.PartialObjectMetadata) bool {
	return obj.DeletionTimestamp != nil && slices.Contains(obj.Finalizers, metav1.FinalizerOrphanDependents)
}

// waits reports whether obj is being deleted and its dependents must go first.
func waits(obj *metav1.PartialObjectMetadata) bool {
	return obj.DeletionTimestamp != nil && slices.Contains(obj.Finalizers, metav1.FinalizerDeleteDependents)
}

// refersTo reports whether obj has owner among its owners.
func refersTo(obj *metav1.PartialObjectMetadata, owner types.UID) bool {
	return slices.ContainsFunc(obj.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner })
}

// blocks reports whether obj blocks the deletion of owner.
func blocks(obj *metav1.PartialObjectMetadata, owner types.UID) bool {
	return slices.ContainsFunc(obj.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == owner && ptr.Deref(ref.BlockOwnerDeletion, false)
	})
}

// unlinked returns obj's owner references without those to the given owners.
func unlinked(obj *metav1.PartialObjectMetadata, owners ...types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(obj.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return slices.Contains(owners, ref.UID)
	})
}

// unblocked returns obj's owner references with blockOwnerDeletion unset.
func unblocked(obj *metav1.PartialObjectMetadata) []metav1.OwnerReference {
	refs := slices.Clone(obj.OwnerReferences)
	for i := range refs {
		refs[i].BlockOwnerDeletion = nil
	}
	return refs
}

func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
}
