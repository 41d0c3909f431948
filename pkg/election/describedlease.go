package election

import (
	"context"
	"sync"
	"time"
)

// describedLease is the Lease of a term that is not renewed. It keeps up to date what the Lease says of this process
// and of its standbys.
type describedLease struct {
	*heldLease
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// begin does so, and what else it is given, until stop is called or the term is lost. That does not end with ctx.
func (d *describedLease) begin(ctx context.Context, also ...func(context.Context)) {
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.running.Go(func() { d.run(ctx) })
	for _, do := range also {
		d.running.Go(func() { do(ctx) })
	}
}

func (d *describedLease) run(ctx context.Context) {
	every := time.NewTicker(d.cfg.RetryPeriod)
	defer every.Stop()
	for {
		if err := d.refresh(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// refresh writes what describe says, if that has changed. It starts from the Lease as it was last seen, with the edits
// of others. The term ends only if the Lease shows another term or was deleted. A write that fails ends nothing, and
// the next call tries again.
func (d *describedLease) refresh(ctx context.Context) error {
	seen, _ := d.view.Latest()
	if err := d.check(seen.Lease); err != nil {
		return d.fail(err)
	}
	next := seen.Lease.DeepCopy()
	if !d.describe(next) {
		return nil
	}
	written, err := d.update(ctx, next)
	if err != nil {
		d.logger.V(2).Info("Could not write on the Lease what this leader and its standbys are: trying again", "err", err)
		return nil
	}
	d.adopt(written)
	return nil
}

func (d *describedLease) grounds() grounds {
	_, lost := d.lastLease()
	return grounds{lost: lost, pin: d.pin}
}

func (d *describedLease) faltered() <-chan struct{} { return nil }

// stop ends what begin has begun, and returns when it has ended.
func (d *describedLease) stop() {
	d.cancel()
	d.running.Wait()
}
