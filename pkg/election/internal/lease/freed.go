package lease

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Freed returns lease without a holder. Its epoch stays, and so does the mode of its last holder; left is what that holder leaves
// to the next.
func Freed(lease *coordinationv1.Lease, left Presence) *coordinationv1.Lease {
	free := lease.DeepCopy()
	now := metav1.NowMicro()
	free.Spec.HolderIdentity = ptr.To("")
	free.Spec.LeaseDurationSeconds = ptr.To[int32](1) // as client-go does, for candidates that wait even so
	free.Spec.AcquireTime, free.Spec.RenewTime = &now, &now
	left.ElectionMode = PredecessorOf(lease).ElectionMode             // also of who was named and has written nothing
	if mode := left.ElectionMode; mode != "" && mode != Coordinated { // others have written it
		free.Spec.Strategy, free.Spec.PreferredHolder = nil, nil
	}
	Strip(free)
	left.WriteTo(free)
	return free
}

// Strip takes off lease what was its last term's: the owner that the election gave it, and a wish.
func Strip(lease *coordinationv1.Lease) {
	disown(lease)
	delete(lease.Annotations, wishAnnotation)
}
