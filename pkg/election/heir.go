package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// couldLead answers a leader that cannot renew: whether this process stands by, reads the Lease with that holder on it, and could
// write it.
func (e *Elector) couldLead(ctx context.Context, holder string) bool {
	if !e.stands.Load() {
		return false
	}
	if _, _, err := e.follower.read(ctx); err != nil {
		return false
	}
	seen, _ := e.view.latest()
	return seen.holder() == holder && e.api.takesWrites(ctx, seen.highest)
}

// takesWrites reports whether the store takes a write of the Lease now. It tries to create the Lease that is there. The API server
// sends etcd a transaction that would put the key if there was none: that needs a quorum and free space, as a takeover does, and
// changes nothing, not even the revision. A dry-run and a conflict of an update never reach etcd; a deletion needs no space.
//
// If the Lease was deleted a moment ago, what is created is free and goes on from the highest epoch.
func (a leaseAPI) takesWrites(ctx context.Context, highest int64) bool {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
	lease.Spec.LeaseTransitions = ptr.To(int32(highest))
	_, err := a.client.Create(ctx, lease, metav1.CreateOptions{})
	return apierrors.IsAlreadyExists(err)
}
