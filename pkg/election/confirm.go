package election

import (
	"context"
	"fmt"

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
	return fmt.Errorf("%w: the presence of holder %q was renewed, and this process had not seen it yet", errNotAcquired, d.seen.Holder())
}
