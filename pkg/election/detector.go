package election

import (
	"context"
	"time"
)

// Detector learns what the Lease does not say, or says too late: that the process of its holder is gone or silent, or
// cannot renew. Package detect has one that works over the network. One Detector serves one Elector.
type Detector interface {
	// Contact is how the detectors of other processes reach this one. It goes on the Lease with each term.
	Contact() Contact
	// Follow keeps in touch with the process of a leader until ctx ends, and tells f what it learns, one call at a time. The
	// Contact is zero if the leader gives none. It returns soon after ctx has ended, and calls f no more then.
	Follow(ctx context.Context, leader Contact, f Follower)
	// Say is this process's statement to all who follow it, until the next.
	Say(Statement)
	// Confirmations brings the answers of those who follow this process, once it has said that it is in trouble.
	// Only the Elector reads from it.
	Confirmations() <-chan Confirmation
	// Followers are the replicas that follow this process now.
	Followers() []Standby
}

// Standby is a replica that follows a leader.
type Standby struct {
	Replica string
	// Mode is the one in which it would lead, Priority how much it is preferred.
	Mode     ModeName
	Priority int32
	// Led is the holder identity of its last term; empty if it has led none.
	Led string
}

// Contact says how to reach a process, and how to know that it is this one. The zero Contact reaches nobody.
type Contact struct {
	// Address is host:port.
	Address string `json:"address,omitempty"`
	// Key is the fingerprint of the key that this process alone has.
	Key string `json:"key,omitempty"`
}

// Follower is who follows a leader's process.
type Follower struct {
	// Is what the leader is told of this process. The Detector knows its name.
	Is Standby
	// Report takes what has become known. It must not block.
	Report func(News)
	// Writes reports whether this process could take the lease from that holder, who asks because it cannot renew: it reads
	// the Lease with that holder on it, and the store takes its writes. It may take as long as two requests, and ends with ctx.
	Writes func(ctx context.Context, holder string) bool
}

// News is what is known of a process.
type News struct {
	Sign Sign
	// Since is when the process was last heard, if it is silent, or when contact broke off, if it is dead.
	Since time.Time
	// Said is its last statement; the zero Statement if it made none.
	Said Statement
}

// Sign is whether a process shows that it lives.
type Sign int

const (
	// NoSign: there is no contact, and that says nothing.
	NoSign Sign = iota
	// Alive: it answers.
	Alive
	// Silent: it answered, and has not been heard for too long: it hangs, or the network is cut.
	Silent
	// Dead: it answered, contact broke off, and now its address refuses connections.
	Dead
)

// Statement is what a process says of its last term.
type Statement struct {
	// Holder is that term's holder identity.
	Holder    string    `json:"holder"`
	Condition Condition `json:"condition"`
}

// Condition is how it goes with a term.
type Condition string

const (
	// Well: it leads.
	Well Condition = "well"
	// Troubled: it leads, and has not been able to renew for some time. It asks its followers whether they could write the Lease.
	Troubled Condition = "troubled"
	// Over: the term has ended and nothing of it is left, but perhaps its holder on the Lease.
	Over Condition = "over"
)

// Confirmation is what a follower says: it could take the lease from that holder.
type Confirmation struct {
	Standby
	Holder string
}

// DetectionModes are the values of Detection.
var DetectionModes = []Detection{DetectOff, DetectCrash, DetectSuspect}

// Detection says on what signs a standby takes the lease before it has expired.
type Detection string

const (
	// DetectOff: on none.
	DetectOff Detection = "off"
	// DetectCrash: when the leader's process is seen to be gone, or says itself that its term is over.
	DetectCrash Detection = "crash"
	// DetectSuspect: also when the leader has been silent for too long. It may live: its writes must be fenced.
	DetectSuspect Detection = "suspect"
)
