package status

import (
	"strings"
	"time"
)

// Terms is what is remembered of the terms of a shard.
type Terms struct {
	Shard string `json:"shard"`
	// Terms are the latest terms, the latest first. A term that left no record of its own is there if a later
	// leader knew of it.
	Terms []Term `json:"terms"`
}

// Term is one unbroken period of one replica's leadership, or of somebody else's who took the Lease. Its leader records
// it in etcd once, when the takeover is measured, under the term's fencing token. Its successors record how it ended.
type Term struct {
	// Range is of which range the term was; 0 in a shard with one leader.
	Range int `json:"range,omitempty"`
	// Epoch grows from term to term. It may begin again with 1 after the Lease was deleted.
	Epoch int64 `json:"epoch"`
	// Replica is empty if the holder did not say which replica it was.
	Replica string `json:"replica,omitempty"`
	Holder  string `json:"holder"`
	// Began is when the lease was acquired, by the leader's clock. Zero: nobody knows.
	Began time.Time `json:"began,omitzero"`
	// Ended is when the term ended, as far as its successor saw: the release, or the last sign of life. Zero: the
	// term goes on if it is the latest; of others nobody knows.
	Ended time.Time `json:"ended,omitzero"`
	// EndCause is why it ended, in the words of election.Cause or of Trigger. EndReason has
	// details.
	EndCause  string `json:"endCause,omitempty"`
	EndReason string `json:"endReason,omitempty"`
	// Trigger says which event made the leader campaign: see election.Trigger. Empty: the leader left no record.
	Trigger string `json:"trigger,omitempty"`
	// Phases are how long the takeover's phases took, in seconds: detect, break, acquire, caches, first_reconcile,
	// first_write.
	Phases map[string]float64 `json:"phases,omitempty"`
	// Gap is for how many seconds nobody led before it, as far as the leader knew: from the end of the last term to
	// Began.
	Gap float64 `json:"gapSeconds,omitempty"`
}

// Is reports whether both tell of the same term. Replicas have another holder identity in each term, or one for all
// terms of their presence.
func (t Term) Is(other Term) bool {
	return t.Range == other.Range && t.Epoch == other.Epoch && t.Holder == other.Holder
}

// IsFirst reports whether nobody has led before.
func (t Term) IsFirst() bool { return t.Trigger == "none" || t.Trigger == "" && t.Epoch == 1 }

// endedOnRequest reports whether somebody wanted the term to end: its process was told to stop, somebody asked for a
// step down, or another replica was preferred. election words the last two.
func (t Term) endedOnRequest() bool {
	return t.EndCause == "shutdown" || t.EndCause == "step down" && strings.HasPrefix(strings.TrimPrefix(t.EndReason, "step down: "), "on request: ")
}
