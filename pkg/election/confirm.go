package election

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// confirm reads the presence of the holder once more, if d takes the lease because that has expired or is over. The
// holder renews it without a change to the Lease, so if the watch of the presence lags, the compare-and-swap of the
// Lease would not find that out.
func (e *Elector) confirm(ctx context.Context, d decision) error {
	if !d.seen.IsByPresence() || d.trigger != TriggerExpiry && d.trigger != TriggerOwnerDeleted {
		return nil
	}
	of, _ := e.ownerOfHolder(d.seen)
	list, err := e.api.For(of.name).Read(ctx)
	if err != nil {
		return fmt.Errorf("read the presence of the holder once more: %w", err)
	}
	read := lease.Read(list)
	switch {
	case of.isGone(read):
		return nil
	case d.trigger == TriggerExpiry && read.Revision == d.seen.KeptAt():
		return nil
	}
	// like a compare-and-swap that fails: nothing is wrong, and nobody need be told
	return apierrors.NewConflict(coordinationv1.Resource("leases"), e.api.Name,
		fmt.Errorf("the presence of holder %q was renewed, and this process had not seen it yet", d.seen.Holder()))
}
