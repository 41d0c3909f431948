package ranges

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// gift is that a range was given away.
type gift struct {
	times int // lately
	at    time.Time
}

const (
	// mostDoublings is how often the time is doubled for which a range stays that comes back again and again.
	mostDoublings = 8
	// remembered is for how many such times in a row a range has to stay away, or where it is, until that is
	// forgotten.
	remembered = 2
	// rests is for how many times as long as a handover nothing is given away after it: the next one should not
	// wait for what this one's term has to do at its beginning.
	rests = 4
)

// balance gives away, until ctx ends, what others should lead: one range after the other, when the assignment has not
// changed for a lease duration. What comes back was not wanted: it stays twice as long each time.
func (d *division) balance(ctx context.Context) {
	settled := time.NewTimer(d.group.cfg.LeaseDuration)
	defer settled.Stop()
	for {
		changed := d.reassigned()
		select {
		case <-ctx.Done():
			return
		case <-changed:
			settled.Reset(d.group.cfg.LeaseDuration)
		case <-settled.C:
			for began := time.Now(); d.giveOne(ctx); began = time.Now() {
				lease.Sleep(ctx, rests*time.Since(began))
			}
			settled.Reset(d.group.cfg.LeaseDuration)
		}
	}
}

// giveOne gives away one range that another process should lead, waits until that leads it, and reports whether it
// does.
func (d *division) giveOne(ctx context.Context) bool {
	for k, elector := range d.electors {
		to, _ := d.assignedTo(k)
		if to == "" || to == elector.Names().Instance || !d.mayGive(k, time.Now()) {
			continue
		}
		member, ok := d.group.member(to)
		if !ok {
			continue
		}
		_, err := elector.StepDown("the range belongs to the share of "+to, member.replica)
		switch {
		case err == nil:
			d.given[k] = gift{d.given[k].times + 1, time.Now()}
			return d.awaitHolder(ctx, k, member.holder)
		case !errors.Is(err, election.ErrNotLeading):
			klog.FromContext(ctx).V(2).Info("Cannot hand a range over to the process to whose share it belongs: trying again", "range", k, "to", to, "err", err)
		}
	}
	return false
}

// mayGive reports whether a range has stayed for long enough, if it has come back.
func (d *division) mayGive(k int, now time.Time) bool {
	last, some := d.given[k]
	if !some {
		return true
	}
	wait, since := d.group.cfg.LeaseDuration<<min(last.times, mostDoublings), now.Sub(last.at)
	if since > remembered*wait {
		delete(d.given, k)
	}
	return since > wait
}

// awaitHolder waits until the Lease of a range shows that holder, for a retry period at most, and reports whether it
// does.
func (d *division) awaitHolder(ctx context.Context, k int, holder string) bool {
	ctx, cancel := context.WithTimeout(ctx, d.group.cfg.RetryPeriod)
	defer cancel()
	for {
		all, changed := d.group.leases.all()
		if all[d.names[k]].holder() == holder {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
