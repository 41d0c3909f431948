package ranges

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// The number changes in two writes of the election's Lease, and with one range in the second of them only:
//
//	{ranges: n} -- mark --> {ranges: n, next: m, changer} -- when the changer leads all n ranges, without work --> {ranges: m}
//	                                     |
//	                                     +-- give up, by whoever sees that not all want m --> {ranges: n}
//
// Both are compare-and-swaps. A process that works leads under {ranges: n} only (division.mayWrite). So whoever works
// in one of the n ranges after the mark has acquired it before, and the changer waits for that term's end. A changer
// that was paused, and whose leases others have taken, cannot write the second: they have given up its mark before they
// acquire anything.

// change changes the number, once this process leads all ranges of the present one. It returns when ctx ends.
func (d *division) change(ctx context.Context) {
	g := d.group
	for ctx.Err() == nil {
		all, changed := g.leases.all()
		if of := all[g.cfg.Name].lease(); of != nil {
			if next, write := d.nextNumber(of); write && g.writeNumber(ctx, of, next) && next.Next == 0 {
				klog.FromContext(ctx).Info("The number of ranges has changed", "from", d.stage.of, "to", next.Ranges)
			}
		}
		again := time.NewTimer(g.cfg.RetryPeriod) // a write may have failed
		select {
		case <-ctx.Done():
		case <-changed:
		case <-d.led:
		case <-again.C:
		}
		again.Stop()
	}
}

// nextNumber returns what this process, which gathers, writes next on the Lease of the election, if it can write now.
func (d *division) nextNumber(of *coordinationv1.Lease) (next number, write bool) {
	now, err := numberOn(of)
	if err != nil {
		return number{}, false
	}
	self := d.group.names.Instance
	return d.stage.nextNumber(now, self, d.leadsAll(), lease.PresenceOf(of).Instance == self)
}

// giveUp ends changes of the number that do not go on, until ctx ends.
func (g *Group) giveUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case of := <-g.marked:
			if now, err := numberOn(of); err == nil && g.writeNumber(ctx, of, number{Ranges: now.Ranges}) {
				klog.FromContext(ctx).Info("The number of ranges stays: not all processes that are present want another one", "ranges", now.Ranges, "not", now.Next, "changer", now.Changer)
			}
		}
	}
}

// writeNumber writes a number by a compare-and-swap, and reports whether it has.
func (g *Group) writeNumber(ctx context.Context, of *coordinationv1.Lease, n number) bool {
	ctx, cancel := context.WithTimeout(ctx, g.leases.timeout)
	defer cancel()
	_, err := g.leases.Update(ctx, n.writeTo(of), metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && context.Cause(ctx) == nil {
		klog.FromContext(ctx).Error(err, "Cannot write how many ranges there are: trying again (it takes the verb update)", "lease", of.Name)
	}
	return err == nil
}
