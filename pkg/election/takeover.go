package election

import "time"

// Trigger says which event made a standby campaign.
type Trigger string

const (
	// TriggerNone: there was no Lease.
	TriggerNone Trigger = "none"
	// TriggerRelease: the Lease was there and nobody held it. TriggerDeletion: the Lease was deleted.
	TriggerRelease  Trigger = "release"
	TriggerDeletion Trigger = "deletion"
	// TriggerDeath: the holder's process was found dead.
	TriggerDeath Trigger = "death"
	// TriggerStepAside: the holder could not renew, and told its standbys that its term was over.
	TriggerStepAside Trigger = "step-aside"
	// TriggerSuspicion: the holder was silent for too long.
	TriggerSuspicion Trigger = "suspicion"
	// TriggerExpiry: the lease expired.
	TriggerExpiry Trigger = "expiry"
	// TriggerElected: in mode coordinated the electing controller named this process, which did not see why the
	// last term ended.
	TriggerElected Trigger = "elected"
	// TriggerOwnerDeleted: the lease was held for life, and the object that stood for the holder's life was
	// deleted.
	TriggerOwnerDeleted Trigger = "owner-deleted"
)

// Triggers are all values of Trigger.
var Triggers = []Trigger{TriggerNone, TriggerRelease, TriggerDeletion, TriggerDeath, TriggerStepAside, TriggerSuspicion, TriggerExpiry, TriggerElected, TriggerOwnerDeleted}

// Takeover says why and when a term began, by this process's clock. It is zero without leader election.
type Takeover struct {
	Trigger Trigger
	// Symptom is when this process first noticed the event: when contact with the holder broke off, when the holder
	// was last heard or last seen to renew, or when the release was seen.
	Symptom time.Time
	// Decided is when this process found that it could win the lease. Sent is when it sent the write that acquired
	// the lease, and Acquired when the answer came.
	Decided, Sent, Acquired time.Time
}
