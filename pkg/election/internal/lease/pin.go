package lease

import (
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pin identifies a term on its Lease. The term holds the lease for as long as none of the three values changes. Others
// may edit everything else on the Lease without ending the term.
type Pin struct {
	UID    types.UID
	Holder string
	Epoch  int64
}

// Check returns nil if lease shows the pinned term. Otherwise the error says what lease shows. lease must come from the
// View or from a read. Both are at least as new as the write that began the term. So a lower epoch is not late news:
// somebody has taken the lease without regard to epochs.
func (p Pin) Check(lease *coordinationv1.Lease) error {
	switch {
	case lease == nil:
		return errors.New("the Lease was deleted")
	case lease.UID != p.UID:
		return fmt.Errorf("the Lease was deleted and created again (uid %s, was %s), holder %q in epoch %d",
			lease.UID, p.UID, holderOf(lease), epochOf(lease))
	case holderOf(lease) == "":
		return fmt.Errorf("the holder was taken off the lease in epoch %d", epochOf(lease))
	case holderOf(lease) != p.Holder, epochOf(lease) != p.Epoch:
		return fmt.Errorf("the lease is held by %q in epoch %d", holderOf(lease), epochOf(lease))
	default:
		return nil
	}
}
