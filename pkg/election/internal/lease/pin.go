package lease

import (
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pin is what makes a Lease one term's: it holds for as long as none of the three changes. Everything else on the Lease
// may be edited by others; that deposes nobody.
type Pin struct {
	UID    types.UID
	Holder string
	Epoch  int64
}

// Check returns nil if lease shows the pinned term, otherwise an error that says what it shows. lease must be what
// the view has, or a read: neither is older than the write that began the term, so a lower epoch is no late news, but somebody's who
// took the lease where nothing keeps epochs from falling.
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
