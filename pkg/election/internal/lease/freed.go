package lease

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Freed returns a copy of lease without its holder, and with left as what the holder leaves to the next one. The epoch
// and the mode stay.
func Freed(lease *coordinationv1.Lease, left Presence) *coordinationv1.Lease {
	free := lease.DeepCopy()
	now := metav1.NowMicro()
	free.Spec.HolderIdentity = ptr.To("")
	free.Spec.LeaseDurationSeconds = ptr.To[int32](1) // as client-go does, for candidates that wait for the expiry
	free.Spec.AcquireTime, free.Spec.RenewTime = &now, &now
	// even if the holder was named and has written nothing
	left.ElectionMode = PredecessorOf(lease).ElectionMode
	if mode := left.ElectionMode; mode != "" && mode != Coordinated { // somebody else has written these fields
		free.Spec.Strategy, free.Spec.PreferredHolder = nil, nil
	}
	Strip(free)
	left.WriteTo(free)
	return free
}

// Strip removes from lease what belonged to its last term: the owner that the election gave it, and a wish.
func Strip(lease *coordinationv1.Lease) {
	disown(lease)
	delete(lease.Annotations, wishAnnotation)
}
