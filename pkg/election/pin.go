package election

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pin is what makes a Lease one term's: it holds for as long as none of the three changes. Everything else on the Lease
// may be edited by others; that deposes nobody.
type pin struct {
	uid    types.UID
	holder string
	epoch  int64
}

// check returns nil if lease shows the pinned term, otherwise an error of cause Deposed that says what it shows. lease must be what
// the view has, or a read: neither is older than the write that began the term, so a lower epoch is no late news, but somebody's who
// took the lease where nothing keeps epochs from falling.
func (p pin) check(lease *coordinationv1.Lease) error {
	switch {
	case lease == nil:
		return because(Deposed, "the Lease was deleted")
	case lease.UID != p.uid:
		return because(Deposed, "the Lease was deleted and created again (uid %s, was %s), holder %q in epoch %d",
			lease.UID, p.uid, holderOf(lease), epochOf(lease))
	case holderOf(lease) == "":
		return because(Deposed, "the holder was taken off the lease in epoch %d", epochOf(lease))
	case holderOf(lease) != p.holder, epochOf(lease) != p.epoch:
		return because(Deposed, "the lease is held by %q in epoch %d", holderOf(lease), epochOf(lease))
	default:
		return nil
	}
}
