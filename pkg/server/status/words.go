package status

import (
	"slices"
	"strings"
)

// StateLeading is Election.State of the replica that leads. While it ends its term it drains, and it is quarantined if
// work of that term has not stopped. The words are package election's.
const (
	StateLeading     = "leading"
	stateDraining    = "draining"
	stateQuarantined = "quarantined"
)

// Triggers are sentences for Term.Trigger and Election.Trigger: why a term began.
var Triggers = map[string]string{
	"none":          "it is the first term",
	"release":       "the previous leader gave the lease up",
	"deletion":      "the Lease was deleted or cleared",
	"death":         "the previous leader had died",
	"step-aside":    "the previous leader could not renew the lease, and made way",
	"suspicion":     "the previous leader was silent",
	"expiry":        "the lease had expired",
	"elected":       "it was elected",
	"owner-deleted": "the previous leader was declared dead",
}

// Why returns why the term at an index of the latest terms began, and in parentheses why the one before it ended, as
// far as that is known.
func Why(terms []Term, n int) string {
	why, ok := Triggers[terms[n].Trigger]
	if !ok {
		why = terms[n].Trigger
	}
	before := slices.IndexFunc(terms[n+1:], func(t Term) bool { return t.Range == terms[n].Range })
	if before >= 0 && why != "" && terms[n+1+before].EndReason != "" {
		why += " (" + strings.Join(strings.Fields(terms[n+1+before].EndReason), " ") + ")"
	}
	return why
}
