package election

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// standBy waits until the lease can be won, and returns that decision, or ctx's cause. In a loop it looks, plans, and
// does what was planned. It writes in three cases only: to clear an identity of this process that leads no term, to ask
// a leader of lower priority to step down, and in mode coordinated to depose a holder that can be succeeded.
func (r *run) standBy(ctx context.Context) (decision, error) {
	r.standsBy.Store(true)
	defer r.standsBy.Store(false)
	r.memory.winnable, r.memory.wish.able = winnable{}, time.Now()
	r.candidate = r.mode.candidate()
	for swept := false; ctx.Err() == nil; {
		s, changes := r.look()
		if s.seen.IsKnown() && !swept && r.presence == nil { // a presence sweeps for all
			r.sweep(ctx, s.seen.Presence())
			swept = true
			continue
		}
		d := plan(r.cfg, s)
		r.memory = d.memory
		r.tell(ctx, s, d.remarks)
		r.mode.nominate(d.nominate)
		switch d.action {
		case wait:
			changes.await(ctx, d.again)
		case win:
			return d, nil
		case clear:
			r.clear(ctx, d.seen, d.reason)
		case depose:
			r.depose(ctx, d)
		case ask:
			r.ask(ctx, s)
		}
	}
	return decision{}, context.Cause(ctx)
}

// look returns what a standby knows now, and the channels that are closed when that changes.
func (r *run) look() (situation, changes) {
	now := time.Now()
	seen, changed := r.view.Latest()
	seen = r.withPresence(seen, now)
	holder := seen.Presence()
	owner, _ := r.ownerOfHolder(seen)
	news, heard := r.peer.latest(Contact(holder.Contact))
	unready := r.mode.unready()
	assigned, reassigned := r.assigned()
	return situation{
		now:  now,
		seen: seen,
		holder: knowledge{
			candidate: r.candidate, mine: r.identities.ours(seen.Holder()),
			dead: r.processLock.knowsDead(holder), near: r.processLock.neighbour(holder),
			news: news, fenced: r.cfg.bothFenced(holder), risked: r.cfg.bothRisk(holder),
			suspect: r.cfg.EffectiveDetection() == DetectSuspect, suspicions: r.suspicions(holder),
			orphaned: r.peer.isGone(owner),
		},
		pace: r.pace, lastEpoch: r.past.last.epoch, unready: unready != nil,
		assigned: assigned,
		memory:   r.memory,
	}, changes{changed, heard, unready, reassigned}
}

// assigned returns what Config.Assigned does.
func (e *Elector) assigned() (instance string, changed <-chan struct{}) {
	if e.cfg.Assigned == nil {
		return "", nil
	}
	return e.cfg.Assigned()
}

// withPresence returns what was seen of the lease, with what is known of the presence that keeps it, if one does.
func (e *Elector) withPresence(seen lease.Observation, now time.Time) lease.Observation {
	switch ours := e.identities.ours(seen.Holder()); {
	case !seen.IsByPresence(), ours && e.presence == nil:
		return seen
	case ours:
		return seen.KeptBy(e.presence.observe(), now)
	}
	owner, _ := e.ownerOfHolder(seen)
	return seen.KeptBy(e.peer.lifeOf(owner), now)
}

// bothFenced reports whether this process and the holder are fenced.
func (c Config) bothFenced(holder lease.Presence) bool {
	return c.Fenced && holder.Fencing == lease.Fenced
}

// bothRisk reports whether this process and the holder have chosen SucceedUnfenced.
func (c Config) bothRisk(holder lease.Presence) bool {
	return c.SucceedUnfenced && holder.Succession == lease.OnRefusal
}

// changes has channels that are closed when something changes: on the Lease, about the holder's process, in what the
// mode needs, or in who should lead.
type changes struct{ lease, holder, mode, assigned <-chan struct{} }

// await waits for a change, until the given time (zero: for ever), or until ctx ends.
func (c changes) await(ctx context.Context, until time.Time) {
	timer := newAlarm(until)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-c.lease:
	case <-c.holder:
	case <-c.mode:
	case <-c.assigned:
	case <-timer.C:
	}
}

// newAlarm returns a timer that fires at t, or never if t is zero.
func newAlarm(t time.Time) *time.Timer {
	if t.IsZero() {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	return time.NewTimer(time.Until(t))
}

// sweep deletes what dead processes of this machine have left, in any mode. It keeps what the lease's holder has left,
// because its lock file proves to others that the holder is dead. The view may be out of date, so sweep reads the
// holder from the store after it has listed the dead. A process that was dead by then cannot become the holder later.
func (e *Elector) sweep(ctx context.Context, seen lease.Presence) {
	dead := slices.DeleteFunc(e.processLock.dead(), func(process string) bool { return process == seen.Process })
	if len(dead) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.requestTimeout())
	defer cancel()
	holder, err := e.sweepLives(ctx)
	if err == nil && e.cfg.Candidates != nil {
		err = sweepCandidates(ctx, e.cfg.Candidates, e.cfg.Name, e.processLock.knowsDead)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not delete what dead processes of this machine have left: the next standby tries again", "err", err)
		return
	}
	e.processLock.remove(dead, holder)
}

// clear takes an identity of this process off the Lease, on the revision that showed it. Nobody works under that
// identity: a write whose answer was lost, a write that was committed late, or a failed release left it there.
func (r *run) clear(ctx context.Context, seen lease.Observation, reason string) {
	how := ending{why: seen.Presence().LastStepDown, details: "cleared by its own process, which did not lead in it"}
	if seen.Holder() == r.past.last.holder {
		how = r.past.last.ending
	}
	written, err := r.api.Update(ctx, freed(seen.Lease, how))
	if err != nil {
		r.complain(ctx, err, "Cannot take an old identity of this process off the lease: trying again. Meanwhile others wait for the lease to expire")
		r.writeFailed(seen)
		return
	}
	klog.FromContext(ctx).Info("Cleared the holder", "reason", reason, "epoch", seen.Epoch(), "holder", seen.Holder())
	r.view.See(written)
	r.writeSucceeded()
}

// depose takes a holder that can be succeeded off the Lease, by one compare-and-swap on the revision that was judged.
// An electing controller then names the next (mode coordinated).
func (r *run) depose(ctx context.Context, d decision) {
	seen := d.seen
	free := freed(seen.Lease, ending{why: seen.Presence().LastStepDown, cause: string(d.trigger), details: d.reason})
	p := lease.PresenceOf(free)
	p.PresumedDead = presumedDead(seen.Presence(), d.trigger)
	p.Suspicions = nextSuspicions(r.suspicions(seen.Presence()), d.takeover.Decided.Sub(seen.TermSince), d.trigger)
	p.WriteTo(free)
	err := r.confirm(ctx, d)
	var written *coordinationv1.Lease
	if err == nil {
		written, err = r.api.Update(ctx, free)
	}
	if err != nil {
		r.complain(ctx, err, "Cannot take the holder off the lease: trying again while it can be succeeded")
		r.writeFailed(seen)
		return
	}
	klog.FromContext(ctx).Info("Took the holder off the lease: the electing controller names another", "reason", d.reason, "epoch", seen.Epoch(), "holder", seen.Holder())
	r.tellOfUnproved(ctx, d)
	r.view.See(written)
	r.writeSucceeded()
	r.mode.deposed(ctx, seen)
}

// complain logs a failed write. It logs the first, second, fourth, eighth failure in a row and so on as an error, and
// the others only in detail, as well as those in which another replica was faster.
func (r *run) complain(ctx context.Context, err error, message string) {
	tries := r.pace.misses + 1
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		said := err.Error()
		r.cannotWrite.Store(&said)
	} else {
		r.cannotWrite.Store(nil)
	}
	if seldom := tries&(tries-1) == 0; seldom && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		klog.FromContext(ctx).Error(err, message, "tries", tries)
		return
	}
	klog.FromContext(ctx).V(2).Info(message, "err", err, "tries", tries)
}

// writeFailed records that a write on seen failed. Either the view is out of date, or the write was committed and its
// answer was lost. The next read shows which.
func (r *run) writeFailed(seen lease.Observation) {
	r.pace.writeFailed(seen.Revision, time.Now())
	r.past.unsure = true
	r.watcher.Distrust()
}

// writeSucceeded records that a write was answered. No earlier write of this process can be committed from now on.
func (r *run) writeSucceeded() {
	r.pace.writeSucceeded()
	r.cannotWrite.Store(nil)
	r.past.unsure = false
}

// clearOwn is the last step of Run. It clears the holder if a write of this process may have been committed without an
// answer: no other process could know that this holder does not lead.
func (r *run) clearOwn(ctx context.Context) {
	r.mode.nominate(stepBack)
	r.mode.awaitWithdrawn()
	if r.past.unsure {
		if err := r.watcher.Read(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "Could not read whether this process still holds the lease: others may have to wait until it expires")
			return
		}
	}
	if seen, _ := r.view.Latest(); r.identities.ours(seen.Holder()) {
		r.clear(ctx, seen, "the process ends")
	}
}
