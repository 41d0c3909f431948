package election

import (
	"fmt"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// tenure is all that a leader decides by whether its term goes on, beside its configuration. It is a value: each look makes another.
type tenure struct {
	now  time.Time
	seen lease.Observation
	grounds
	// standbys are those who follow this process, if there is a wish to succeed it.
	standbys []Standby
	trouble  trouble
}

// grounds are what a claim knows of itself.
type grounds struct {
	// lost is why the claim has ended by itself; nil if it has not.
	lost error
	// pin is the term; zero without election.
	pin lease.Pin
	// renewals are how it goes with renewing; zero if nothing is renewed.
	renewals renewals
	// named: the holder was named by whoever elects, who may prefer another later.
	named bool
}

// renewals are how it goes with a term's renewals.
type renewals struct {
	// sent is when the last write that succeeded was sent, failed when the last attempt since was that did not; zero if none has
	// failed.
	sent, failed time.Time
}

// failing reports whether an attempt has failed since the last that succeeded.
func (r renewals) failing() bool { return !r.failed.IsZero() }

// trouble is what a leader does about renewals that fail.
type trouble struct {
	asked bool      // its followers, which of them could write the Lease
	heir  string    // the replica that was the first to say so; empty: none
	since time.Time // when it did
}

// assessment is what a leader makes of its tenure.
type assessment struct {
	// cause is why the term ends; nil: it goes on.
	cause error
	// again is when to look again if nothing changes before; zero: only news changes the assessment.
	again time.Time
	// say is what those who follow this process are told; empty: nothing.
	say     Condition
	trouble trouble
}

// assess decides whether a term goes on. It is a function of its arguments alone.
func assess(cfg Config, t tenure) assessment {
	until, cause := t.deadline(cfg)
	if cause != nil {
		return assessment{cause: cause}
	}
	if cfg.Detector == nil {
		return assessment{again: until}
	}
	if cause := t.wish(cfg); cause != nil {
		return assessment{cause: cause}
	}
	a := t.aside(cfg)
	if a.cause == nil {
		a.again = earlier(a.again, until)
	}
	return a
}

// deadline is until when the term may go on without news, zero if no time ends it, or why it may not go on. What is left of the lease
// at the deadline suffices for the drain: with client-go alone, the time it tries to renew and the drain together may be longer than
// the lease.
func (t tenure) deadline(cfg Config) (until time.Time, cause error) {
	if t.lost != nil {
		return time.Time{}, t.lost
	}
	if t.pin == (lease.Pin{}) {
		return time.Time{}, t.givesWay(cfg)
	}
	if err := t.pin.Check(t.seen.Lease); err != nil {
		return time.Time{}, because(Deposed, "%w", err)
	}
	if preferred := t.seen.Preferred(); preferred != "" && t.named {
		return time.Time{}, because(StepDown, "%w", &request{reason: "candidate " + preferred + " is preferred"})
	}
	if t.renewals.sent.IsZero() {
		return time.Time{}, nil
	}
	until = t.renewals.sent.Add(cfg.usable())
	if !t.now.Before(until) {
		return time.Time{}, because(RenewDeadline, "the last renewal was sent %v ago", t.now.Sub(t.renewals.sent))
	}
	return until, nil
}

// givesWay is why a process stops to lead that leads without election: somebody holds the lease.
func (t tenure) givesWay(cfg Config) error {
	if t.seen.Holder() == "" || !t.seen.HeldForLife() && !t.now.Before(t.seen.Expiry(cfg.LeaseDuration)) {
		return nil
	}
	return because(Deposed, "the lease is held by %q in epoch %d, and this process is no candidate", t.seen.Holder(), t.seen.Epoch())
}

// wish is why the term ends in view of a wish on the Lease: a replica of a higher priority, that follows this one, wants to lead. Nil
// if it need not.
func (t tenure) wish(cfg Config) error {
	w := t.seen.Wish()
	if w.Holder == "" || w.Holder != t.pin.Holder || w.Mode != cfg.kind().name || w.Priority <= cfg.Priority {
		return nil
	}
	if follows := checkStandby(cfg, w.Replica, t.standbys) == nil; w.Replica == "" || !follows {
		return nil
	}
	return because(StepDown, "%w", &request{reason: fmt.Sprintf("replica %q has priority %d, this one %d", w.Replica, w.Priority, cfg.Priority), to: w.Replica})
}

// aside ends a term that cannot be renewed while another process could lead. In trouble, which begins troubledAfter retry periods
// after the last renewal if one has failed since, a leader asks its followers who could write the Lease. From the first answer on the
// store is known to take writes: if a renewal that is tried after it fails too, or none succeeds for as long as one may take, this
// process alone cannot write, and had better make way. Otherwise what was lost is made good by the next try, as when etcd has elected
// another leader. If nobody answers, nobody could lead, and the term goes on until its deadline.
//
// A renewal that is late is no trouble, before it has failed: the store may be slow, for others no less; or this process was
// paused, and renews next.
func (t tenure) aside(cfg Config) assessment {
	begins := t.renewals.sent.Add(troubledAfter * cfg.RetryPeriod)
	until := t.trouble.since.Add(max(cfg.RetryPeriod, cfg.requestTimeout()))
	switch {
	case !t.renewals.failing(), t.now.Before(begins):
		a := assessment{}
		if t.trouble.asked {
			a.say = Well
		}
		if t.renewals.failing() {
			a.again = begins
		}
		return a
	case !t.trouble.asked:
		return assessment{say: Troubled, trouble: trouble{asked: true}}
	case t.trouble.heir == "":
		return assessment{trouble: t.trouble}
	case t.renewals.failed.After(t.trouble.since), !t.now.Before(until):
		return assessment{cause: because(RenewDeadline, "the last renewal was sent %v ago, and replica %q could write the Lease for %v",
			t.now.Sub(t.renewals.sent).Round(time.Millisecond), t.trouble.heir, t.now.Sub(t.trouble.since).Round(time.Millisecond))}
	default:
		return assessment{again: until, trouble: t.trouble}
	}
}

// hear takes in what a follower says of the term of that holder: it could write the Lease. What is late changes nothing.
func (t trouble) hear(said Confirmation, holder string, now time.Time) trouble {
	if said.Holder == holder && t.asked && t.heir == "" {
		t.heir, t.since = said.Replica, now
	}
	return t
}

// troubledAfter is how many retry periods without a renewal are trouble, if one has failed meanwhile.
const troubledAfter = 2
