package election

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// standBy waits until the lease can be won and returns what it saw when it judged so, and why; or ctx's cause. It writes
// only to clear an identity of our own that leads no term, and in mode coordinated to depose a holder who can be succeeded.
func (e *Elector) standBy(ctx context.Context) (lease.Observation, verdict, error) {
	e.stands.Store(true)
	defer e.stands.Store(false)
	swept := false
	e.preemption.able = time.Now()
	if e.candidacy != nil {
		e.candidate = e.identities.next()
	}
	var w winnable
	for {
		if ctx.Err() != nil {
			return lease.Observation{}, verdict{}, context.Cause(ctx)
		}
		seen, changed := e.view.Latest()
		now := time.Now()
		var born <-chan struct{}
		holder := seen.Presence()
		if seen.Known() && !swept {
			e.sweep(ctx, holder)
			swept = true
		}
		news, heard := e.peer.latest(Contact(holder.Contact))
		v := judge(seen, now, e.cfg.LeaseDuration, knowledge{
			candidate: e.candidate, mine: e.identities.ours(seen.Holder()), dead: e.replica.knowsDead(holder),
			news: news, fenced: e.cfg.Fenced && holder.Mode == lease.ModeFenced,
			suspect: e.cfg.Detection == DetectSuspect, suspicions: e.suspicions(holder),
			orphaned: e.peer.isDeleted(lease.LifeOf(seen.Lease).UID),
		})
		w = w.next(v, seen, e.candidacy != nil, now)
		e.standsByOther(ctx, seen)
		e.warnOfLastEpoch(ctx, seen)
		if e.candidacy != nil && v.trigger != TriggerElected {
			v = e.nominate(seen, holder, v, w.since, now)
		}
		again := v.until
		if v.action == wait {
			if e.replica.neighbour(holder) { // its death shows on this machine, not on the Lease
				again = earlier(again, now.Add(e.lookAgain(news, now)))
			}
			again = earlier(again, e.preempt(ctx, seen, holder, news, now))
			again = earlier(again, e.waitsForHolder(ctx, seen, now))
		} else {
			again = e.pace.earliest(v.action, seen.Revision, e.rests(seen, holder))
			if start := e.headStart(seen, holder, w.since); v.action == win && v.trigger != TriggerElected && again.Before(start) {
				again = start
			}
			if v.action == win {
				born = e.unborn()
			}
			if born != nil {
				again = time.Time{} // not before it is there
			} else if !now.Before(again) {
				if v.action == win {
					v.takeover = w.takeover()
					return seen, v, nil
				}
				if v.action == depose {
					e.depose(ctx, seen, v, w.decided)
				} else {
					e.clear(ctx, seen, v.reason)
				}
				continue
			}
		}
		timer := newAlarm(again)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-heard:
		case <-born:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sweep deletes what dead processes of this machine have left, whatever their mode was, but not what the lease's holder has left: by
// its file others know that it is dead. The view may be late about who holds the lease, so the holder is read from the store, after
// the dead were listed: a process that was dead by then cannot become the holder later.
func (e *Elector) sweep(ctx context.Context, seen lease.Presence) {
	dead := slices.DeleteFunc(e.replica.dead(), func(process string) bool { return process == seen.Process })
	if len(dead) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.requestTimeout())
	defer cancel()
	holder, err := e.sweepLives(ctx)
	if err == nil && e.cfg.Candidates != nil {
		err = sweepCandidates(ctx, e.cfg.Candidates, e.cfg.Name, e.replica.knowsDead)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not delete what dead processes of this machine have left: the next standby tries", "err", err)
		return
	}
	e.replica.remove(dead, holder)
}

// rests reports whether the rest after this process's last term counts: that term is still the last, or the last one ended
// by its own work, too.
func (e *Elector) rests(seen lease.Observation, last lease.Presence) bool {
	return !e.cfg.Enabled || last.Failed || seen.Lease != nil && seen.Epoch() == e.last.epoch
}

// headStart is until when a lease that can be won since winnable is left to others: to those of the Lease's mode, if that is
// not this process's, or else to the replica that its last holder preferred, or to those of a higher priority; zero if to none.
func (e *Elector) headStart(seen lease.Observation, last lease.Presence, winnable time.Time) time.Time {
	switch {
	case e.isOther(seen.Mode):
		if last.Alone { // its last holder was the last of them
			return time.Time{}
		}
		start := winnable.Add(modeHeadStart * e.cfg.RetryPeriod)
		if seen.Mode == ModeCoordinated {
			start = start.Add(electionPatience)
		}
		return start
	case last.Preferred == e.cfg.Replica:
		return time.Time{}
	case last.Preferred != "":
		return seen.Since.Add(e.cfg.RetryPeriod / headStarts)
	case last.StandbyPriority > e.cfg.Priority:
		return winnable.Add(e.cfg.RetryPeriod / headStarts)
	default:
		return time.Time{}
	}
}

// isOther reports whether leaders lead in another mode than this process would.
func (e *Elector) isOther(mode Mode) bool {
	return e.cfg.Enabled && mode != "" && mode != e.cfg.Mode
}

// modeHeadStart is how many retry periods a lease that can be won is left to the replicas of its mode: one that lives takes
// it at once, or after a retry period, if it was asked to step down itself. After that there is none, and the mode is changed.
const modeHeadStart = 2

// electionPatience is how long whoever elects waits for candidates that do not answer.
const electionPatience = 5 * time.Second

// lookAgain is after what time to look again whether a process on this machine is dead, which shows in no event: soon, if
// contact with it has just broken off.
func (e *Elector) lookAgain(news News, now time.Time) time.Duration {
	if news.Sign != Dead {
		return e.cfg.RetryPeriod
	}
	return min(max(now.Sub(news.Since)/2, time.Millisecond), e.cfg.RetryPeriod)
}

// headStarts is how many head starts there are in a retry period.
const headStarts = 4

// clear takes our own identity off the Lease, on the revision that showed it there: a lost answer, a late commit or a
// release that failed left it, and nobody works under it.
func (e *Elector) clear(ctx context.Context, seen lease.Observation, reason string) {
	how := ending{why: seen.Presence().LastStepDown}
	if seen.Holder() == e.last.holder {
		how = e.last.ending
	}
	written, err := e.api.Update(ctx, freed(seen.Lease, how))
	if err != nil {
		e.complain(ctx, err, "Cannot take an old identity of this process off the lease: trying again, and others wait until it expires")
		e.writeFailed(seen)
		return
	}
	klog.FromContext(ctx).Info("Cleared the holder", "reason", reason, "epoch", seen.Epoch(), "holder", seen.Holder())
	e.view.See(written)
	e.writeSucceeded()
}

// complain logs a failed write: ever more seldom while it goes on failing, and not at all if another was faster.
func (e *Elector) complain(ctx context.Context, err error, message string) {
	tries := e.pace.misses + 1
	if seldom := tries&(tries-1) == 0; seldom && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		klog.FromContext(ctx).Error(err, message, "tries", tries)
		return
	}
	klog.FromContext(ctx).V(2).Info(message, "err", err, "tries", tries)
}

// writeFailed takes in that a write on what was seen failed: the view may be behind, or the write was committed and the
// answer lost. Either shows in the next read.
func (e *Elector) writeFailed(seen lease.Observation) {
	e.pace.writeFailed(seen.Revision, time.Now())
	e.unsure = true
	e.watcher.Distrust()
}

// writeSucceeded takes in that a write was answered: none from before it can be committed any more.
func (e *Elector) writeSucceeded() {
	e.pace.writeSucceeded()
	e.unsure = false
}

// clearOwn is what is left to do before Run returns: if a write of ours may have been committed
// without our knowing, nobody else could tell that its holder does not lead.
func (e *Elector) clearOwn(ctx context.Context) {
	e.withdraw()
	e.waitWithdrawn()
	if e.unsure {
		if err := e.watcher.Read(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "Could not see whether the lease is held by this process: it may be left to expire")
			return
		}
	}
	if seen, _ := e.view.Latest(); e.identities.ours(seen.Holder()) {
		e.clear(ctx, seen, "the process ends")
	}
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
