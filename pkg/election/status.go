package election

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Status is what an Elector knows of its Lease, and what it does about it: see Elector.Status. It is a copy.
type Status struct {
	// State is a state of the diagram at Elector, in its words, or "stopped" while Run does not run.
	State string
	// Mode is that of Config; empty for an Elector of NewUnelected. Priority is that of Config.
	Mode     ModeName
	Priority int32
	// Epoch is the number of the term that the Lease shows; 0 if none was seen. Holder is its holder identity;
	// empty if nobody holds the lease. Leader, LeaderInstance and LeaderURL are Replica, Instance and URL of the
	// Config of the holder's process; empty if it does not say.
	Epoch                             int64
	Holder                            string
	Leader, LeaderInstance, LeaderURL string
	// Began is when the holder acquired the lease, Renewed when it last renewed it, both by the holder's clock.
	// They are zero if nobody holds the lease. Duration is how long the lease lasts without a renewal; 0 if it does
	// not expire.
	Began, Renewed time.Time
	Duration       time.Duration
	// Trigger says why this process campaigned for the term in which it leads; empty if it does not lead.
	Trigger Trigger
	// Leaderless is for how long there has been no holder with an unexpired lease that is accounted for; 0 while
	// there is one.
	Leaderless time.Duration
	// LastStepDown says why a holder last gave the lease up.
	LastStepDown string
	// Past are the latest terms that this process knows to have ended, the oldest first; at most 3.
	Past []PastTerm
	// Unaccounted: the holder may be dead, and an operator has to say so (Notice Unaccounted). OtherMode: leaders
	// use another mode than this Elector (Notice OtherMode).
	Unaccounted, OtherMode bool
	// CannotRead says why this process cannot read or watch the Lease, as its log does; empty if it can, or while
	// Run does not run. As long as it cannot read the Lease, the other fields may be out of date.
	CannotRead string
	// CannotWrite says why this process's latest attempt to take the lease has failed, if not because another one
	// was faster. It is empty once an attempt has succeeded.
	CannotWrite string
	// Held says what whoever runs this Elector waits for before Run, and that it lasts (Hold); empty: nothing.
	// Package leader waits for the proof of the fence and for the secret of the probe, package perterm for the
	// caches of the process.
	Held string
	// CannotStand says why this process cannot keep the object with which it stands for election, as its log does:
	// in mode coordinated its LeaseCandidate, in mode for-life the Lease that stands for its life. It is empty if
	// it can, or while none is wanted. As long as it cannot, this process does not lead.
	CannotStand string
	// Contact is what the Detector knows of the leader's process. It is nil on the leader, and for Detectors that
	// do not say.
	Contact *ContactState
	// Standbys are the replicas that follow this process while it holds the lease, ordered by name.
	Standbys []Standby
}

// PastTerm is a term that has ended, as this process knows it: it has seen the end, or the Lease tells it.
type PastTerm struct {
	// Epoch and Holder are the number of the term and its holder identity. Replica is the name of the holder's
	// replica (Config.Replica), empty if the holder did not say it.
	Epoch   int64  `json:"epoch,omitempty"`
	Holder  string `json:"holder,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Began is when the holder acquired the lease, by its own clock. Ended is when this process saw the end. If it
	// did not see that, Ended is when the holder released the lease, by the holder's clock. Both are zero if nobody
	// has said so.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Renewed is when the holder last renewed the lease, and Duration how long the lease then was; zero if it does
	// not expire.
	Renewed  time.Time     `json:"-"`
	Duration time.Duration `json:"-"`
	// Cause is the Cause or the Trigger of the term's end, as a string. It is empty if the holder was succeeded
	// without a release: the Takeover of the next term then has the Trigger. Reason has details.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// pastTerms returns the terms as callers see them.
func pastTerms(past []lease.Past) (terms []PastTerm) {
	for _, p := range past {
		terms = append(terms, PastTerm(p))
	}
	return terms
}

// ContactState is a standby's contact with the process of the leader.
type ContactState struct {
	// State says how the contact is, in the Detector's own words.
	State string
	// Heard is when the leader was last heard; zero if never. AllowedSilence is for how long it may be silent now.
	Heard          time.Time
	AllowedSilence time.Duration
}

// ContactReporter is a Detector that says how its contact with the leader's process is. Any goroutine may call
// ContactState at any time. It returns nil while this process follows nobody, and must not block.
type ContactReporter interface {
	ContactState() *ContactState
}

// Status returns what the Elector knows and does now. It makes no request. Any goroutine may call it at any time.
func (e *Elector) Status() Status {
	seen, epoch, leaderless := e.observe(time.Now())
	s := Status{
		Epoch: epoch, Leaderless: leaderless, Mode: e.cfg.Mode.Name(), Priority: e.cfg.Priority,
		Unaccounted: e.unaccounted.Load(), OtherMode: e.otherMode.Load(),
	}
	e.mu.Lock()
	now, term := e.state, e.current.term
	if e.watcher != nil && now != stopped {
		s.CannotRead = e.watcher.Fault()
	}
	s.CannotStand = e.standing.Fault()
	if e.presence != nil && now != stopped {
		s.CannotStand = e.presence.fault()
	}
	if cannot := e.cannotWrite.Load(); cannot != nil {
		s.CannotWrite = *cannot
	}
	if held := e.held.Load(); held != nil {
		s.Held = *held
	}
	e.mu.Unlock()
	s.State = string(now)
	holder := seen.Presence()
	s.Holder, s.LastStepDown = seen.Holder(), seen.Predecessor().LastStepDown
	s.Leader, s.LeaderInstance, s.LeaderURL = holder.Replica, holder.Instance, holder.URL
	s.Past = pastTerms(seen.Past)
	if s.Holder != "" {
		spec := seen.Lease.Spec
		s.Began, s.Renewed = ptr.Deref(spec.AcquireTime, metav1.MicroTime{}).Time, seen.Renewed()
		if seen.Expires() {
			s.Duration = seen.Expiry(e.cfg.LeaseDuration).Sub(seen.Since)
		}
	}
	if e.cfg.unelected {
		s.Mode = ""
		if s.Holder == "" && now == leads {
			s.Leader, s.LeaderInstance, s.LeaderURL = e.cfg.Replica, e.cfg.Instance, e.cfg.URL
		}
	}
	if term.Epoch() == s.Epoch { // the Lease does not show another one's term yet
		s.Trigger = term.Takeover().Trigger
	}
	switch now {
	case leads, draining, quarantined:
		s.Standbys = perReplica(e.cfg.followers())
	default:
		if reporter, ok := e.cfg.Detector.(ContactReporter); ok {
			s.Contact = reporter.ContactState()
		}
	}
	return s
}

// fault says why the Elector cannot hold its lease: CannotRead of Status, or CannotWrite.
func (e *Elector) fault() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watcher != nil && e.state != stopped {
		if fault := e.watcher.Fault(); fault != "" {
			return fault
		}
	}
	if cannot := e.cannotWrite.Load(); cannot != nil {
		return *cannot
	}
	return ""
}

// Hold says in Status what keeps this process from the election before Run is called; empty: nothing does any more. Any
// goroutine may call it.
func (e *Elector) Hold(why string) { e.held.Store(&why) }

// perReplica returns each process once, ordered by the replica's name. A replica follows a process for each of its
// Leases, and tells its mode for one of them.
func perReplica(standbys []Standby) []Standby {
	sorted := slices.SortedFunc(slices.Values(standbys), func(a, b Standby) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Instance, b.Instance), -cmp.Compare(a.Mode, b.Mode))
	})
	return slices.CompactFunc(sorted, func(a, b Standby) bool { return a.Replica == b.Replica && a.Instance == b.Instance })
}
