package election

import "time"

// Trigger is what made a standby campaign.
type Trigger string

const (
	// TriggerNone: there was no Lease.
	TriggerNone Trigger = "none"
	// TriggerRelease: nobody held the lease. TriggerDeletion: the Lease was deleted.
	TriggerRelease  Trigger = "release"
	TriggerDeletion Trigger = "deletion"
	// TriggerDeath: the holder's process was seen to be dead.
	TriggerDeath Trigger = "death"
	// TriggerStepAside: the holder could not renew, and said that its term was over.
	TriggerStepAside Trigger = "step-aside"
	// TriggerSuspicion: the holder was silent for too long.
	TriggerSuspicion Trigger = "suspicion"
	// TriggerExpiry: the lease expired.
	TriggerExpiry Trigger = "expiry"
	// TriggerElected: this process was named, in mode coordinated, and saw nothing of what ended the last holder's term.
	TriggerElected Trigger = "elected"
	// TriggerOwnerDeleted: the object was deleted that stood for the life of a holder for life.
	TriggerOwnerDeleted Trigger = "owner-deleted"
)

// Triggers are all of them.
var Triggers = []Trigger{TriggerNone, TriggerRelease, TriggerDeletion, TriggerDeath, TriggerStepAside, TriggerSuspicion, TriggerExpiry, TriggerElected, TriggerOwnerDeleted}

// Takeover tells how a term came about, on this process's clock. It is zero without leader election.
type Takeover struct {
	Trigger Trigger
	// Symptom is when that began to show: contact with the holder broke off, it was last heard or last seen to renew,
	// its release was seen.
	Symptom time.Time
	// Decided is when this process took the lease for one that it could win, Sent when the write that acquired it left,
	// Acquired when that was answered.
	Decided, Sent, Acquired time.Time
}
