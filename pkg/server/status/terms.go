package status

import "time"

// Terms is what is remembered of the terms of a shard.
type Terms struct {
	Shard string `json:"shard"`
	// Terms are the latest terms, the latest first. Those that ended before they could write a record are told by their successor.
	Terms []Term `json:"terms"`
}

// Term is one unbroken period of one replica's leadership, as it is recorded in etcd. The leader writes it once, when the takeover is
// measured, under the term's fencing token. How the term before it ended is told by its successor (Previous).
type Term struct {
	Epoch   int64  `json:"epoch"`
	Replica string `json:"replica"`
	Holder  string `json:"holder"`
	// Began is when the lease was acquired, by the leader's clock.
	Began time.Time `json:"began"`
	// Ended is when the term ended. Zero: it goes on, or nobody knows.
	Ended time.Time `json:"ended,omitzero"`
	// EndCause is why it ended, in the words of regent_election_terms_ended_total or of Trigger. EndReason has details.
	EndCause  string `json:"endCause,omitempty"`
	EndReason string `json:"endReason,omitempty"`
	// Trigger says which event made the leader campaign: see election.Trigger.
	Trigger string `json:"trigger"`
	// Phases are how long the takeover's phases took, in seconds: detect, break, acquire, caches, first_reconcile, first_write.
	Phases map[string]float64 `json:"phases,omitempty"`
	// Gap is for how many seconds nobody led before it, as far as the leader saw: from the first symptom to Began.
	Gap float64 `json:"gapSeconds,omitempty"`
}
