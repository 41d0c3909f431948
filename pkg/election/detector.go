package election

import (
	"context"
	"time"
)

// Detector finds out what the Lease does not show, or shows only later: that the holder's process has died, is silent,
// or cannot renew. Package detect has an implementation that works over the network. Each Elector needs a Detector of
// its own.
type Detector interface {
	// Contact says how the Detectors of other processes reach this one. The Elector writes it on the Lease with
	// each term.
	Contact() Contact
	// Follow keeps in touch with the process of a leader, and reports what it learns to f, in one call at a time.
	// It returns soon after ctx has ended, and does not call f after it has returned. leader is zero if the Lease
	// shows no Contact.
	Follow(ctx context.Context, leader Contact, f Follower)
	// Say sends a Statement of this process to all replicas that follow it. The Statement holds until the next one.
	Say(Statement)
	// Confirmations returns a channel with the answers of followers to the Statement that this process is Troubled.
	// Only the Elector receives from it.
	Confirmations() <-chan Confirmation
	// Followers returns the replicas that follow this process now.
	Followers() []Standby
}

// Standby describes a replica that follows a leader.
type Standby struct {
	// Replica and Instance are its name and that of its process: see Config. Instance is empty if it runs an older
	// version, which gives each process a Replica of its own.
	Replica, Instance string
	// Mode and Priority are those of its Config.
	Mode     ModeName
	Priority int32
	// Led is the holder identity of its latest term; empty if it has led none.
	Led string
	// URL is that of its Config; empty if it has none, or runs an older version.
	URL string
}

// Contact says how to reach a process, and how to recognise it. The zero Contact reaches nobody.
type Contact struct {
	// Address is <host>:<port>.
	Address string `json:"address,omitempty"`
	// Key is the fingerprint of a key that only this process has.
	Key string `json:"key,omitempty"`
}

// Follower is this process, in the role of one that follows a leader: see Detector.Follow.
type Follower struct {
	// Is describes this process to the leader. The Detector adds the replica's name.
	Is Standby
	// Report takes what has become known of the leader's process. It must not block.
	Report func(News)
	// Writes reports whether this process could take the lease from that holder. The Detector calls it when the
	// holder cannot renew. It checks that this process reads the Lease with that holder on it, and that the store
	// takes its writes. It ends with ctx, and takes no longer than two requests.
	Writes func(ctx context.Context, holder string) bool
	// Waits says that this process waits for the lease to expire even if the leader's process is Dead, because the
	// leader's late writes are neither refused (Config.Fenced) nor accepted (Config.SucceedUnfenced). The Detector
	// tells people so.
	Waits bool
}

// News is what is known of the leader's process.
type News struct {
	// Sign says whether the process is alive.
	Sign Sign
	// Since is when the process was last heard if it is Silent, and when contact broke off if it is Dead.
	Since time.Time
	// Said is its latest Statement; zero if it has made none.
	Said Statement
}

// Sign says whether a process shows signs of life.
type Sign int

const (
	// NoSign: there is no contact, and nothing can be concluded from that.
	NoSign Sign = iota
	// Alive: the process answers.
	Alive
	// Silent: the process answered before, but has not been heard for too long. It may hang, or the network may be
	// cut.
	Silent
	// Dead: the process answered before, contact broke off, and now its address refuses connections.
	Dead
)

// Statement is what a process says of its latest term.
type Statement struct {
	// Holder is the holder identity of that term.
	Holder    string    `json:"holder"`
	Condition Condition `json:"condition"`
}

// Condition says how a term is going.
type Condition string

const (
	// Well: the process leads.
	Well Condition = "well"
	// Troubled: the process leads, but has not been able to renew for some time. It asks its followers whether they
	// could write the Lease.
	Troubled Condition = "troubled"
	// Over: the term has ended, and all its work has stopped. Only the Lease may still show its holder.
	Over Condition = "over"
)

// Confirmation is a follower's statement that it could take the lease from Holder.
type Confirmation struct {
	Standby
	Holder string
}

// detectionModes are all values of Detection.
var detectionModes = []Detection{DetectOff, DetectCrash, DetectSuspect}

// Detection says on which signs a standby takes the lease before it has expired.
type Detection string

const (
	// DetectOff: on none.
	DetectOff Detection = "off"
	// DetectCrash: when the leader's process is found dead, or has said that its term is over.
	DetectCrash Detection = "crash"
	// DetectSuspect: also when the leader has been silent for too long. It may be alive, so its writes must be
	// fenced. A term that began on a suspicion is not ended by another one in its first 5 s. That time doubles with
	// each such term in a row, up to 1 min, so that a slow network does not move the lease back and forth. Until
	// then a standby waits for the lease to expire, and says so in its log.
	DetectSuspect Detection = "suspect"
)
