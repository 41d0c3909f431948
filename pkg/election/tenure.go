package election

import (
	"fmt"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// tenure is everything, beside its Config, that a leader's decision to go on depends on. It is a value; each look makes
// a new one.
type tenure struct {
	now  time.Time
	seen lease.Observation
	grounds
	// standbys are the replicas that follow this process. They are set only if the Lease has a wish to succeed this
	// process.
	standbys []Standby
	trouble  trouble
}

// grounds are what a claim knows of itself.
type grounds struct {
	// lost is why the claim has ended by itself; nil if it has not.
	lost error
	// pin identifies the term; zero without election.
	pin lease.Pin
	// renewals say how the renewals are going; zero if nothing is renewed.
	renewals renewals
	// dead is a holder that is certainly dead; only without election.
	dead string
	// named: the electing controller named the holder, and may prefer another later.
	named bool
}

// renewals say how the renewals of a term are going.
type renewals struct {
	// sent is when the last successful write was sent. failed is when the latest failed attempt after that write
	// was sent; zero: none.
	sent, failed time.Time
}

// failing reports whether an attempt has failed since the last success.
func (r renewals) failing() bool { return !r.failed.IsZero() }

// trouble is what a leader whose renewals fail has found out from its followers.
type trouble struct {
	asked bool      // the leader has asked its followers who could write the Lease
	heir  string    // the first replica that said it could; empty: none
	since time.Time // when that answer came
}

// assessment is what assess decides.
type assessment struct {
	// cause is why the term ends; nil: it goes on.
	cause error
	// again is when to assess anew if nothing changes before; zero: only a change can alter the assessment.
	again time.Time
	// say is what to tell the followers of this process; empty: nothing.
	say     Condition
	trouble trouble
}

// assess decides whether a term goes on. The result depends on the arguments alone.
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

// deadline returns until when the term may go on without news, zero if no time ends it. If the term must end now, it
// returns the cause. What is left of the lease at the deadline suffices for the drain. With client-go alone, the time
// for retries and the drain together can be longer than the lease.
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

// givesWay returns why a term without election ends: somebody holds the lease. It returns nil if nobody does.
func (t tenure) givesWay(cfg Config) error {
	if t.seen.Holder() == "" || t.seen.Holder() == t.dead || t.seen.Expires() && !t.now.Before(t.seen.Expiry(cfg.LeaseDuration)) {
		return nil
	}
	return because(Deposed, "the lease is held by %q in epoch %d, and this process is no candidate", t.seen.Holder(), t.seen.Epoch())
}

// wish returns why the term ends because of a wish on the Lease: a replica of higher priority, which follows this one,
// wants to lead. It returns nil if there is no such wish.
func (t tenure) wish(cfg Config) error {
	w := t.seen.Wish()
	if w.Holder == "" || w.Holder != t.pin.Holder || w.Mode != cfg.kind().name || w.Priority <= cfg.Priority {
		return nil
	}
	if w.Replica == "" || cfg.kind().electing || !slices.ContainsFunc(t.standbys, func(s Standby) bool { return s.is(w.Replica, w.Instance) }) {
		return nil
	}
	return because(StepDown, "%w", &request{reason: fmt.Sprintf("replica %q has priority %d, this one %d", w.Replica, w.Priority, cfg.Priority), to: w.Replica})
}

// aside ends a term that cannot be renewed while another process could lead. The leader is in trouble if a renewal has
// failed and troubledAfter retry periods have passed since the last success. It then asks its followers who could write
// the Lease.
//
// The first answer shows that the store takes writes. If a renewal that was sent after it fails, too, or if none
// succeeds for as long as one may take, only this process cannot write, and its term ends. Otherwise the next renewal
// repairs what was lost, as when etcd has elected another leader. If nobody answers, nobody else could lead, and the
// term goes on until its deadline.
//
// A late renewal is no trouble before it has failed. The store may be slow for everyone, or this process was paused and
// renews next.
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

// hear records a follower's statement that it could take the lease from holder. It ignores answers that come late or
// concern another term.
func (t trouble) hear(said Confirmation, holder string, now time.Time) trouble {
	if said.Holder == holder && t.asked && t.heir == "" {
		t.heir, t.since = said.Replica, now
	}
	return t
}

// troubledAfter is how many retry periods after the last success a failed renewal becomes trouble.
const troubledAfter = 2
