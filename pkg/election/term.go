package election

import (
	"context"
	"strings"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Term is one unbroken period of this process's leadership. Terms are comparable values; the zero Term is the one that
// runs without leader election.
type Term struct {
	token       fence.Token
	failedParts string // joined, because Terms are compared
	takeover    Takeover
}

const partsSeparator = ","

// Epoch is the term's number: it grows from term to term of one lease. It is 0 without leader election.
func (t Term) Epoch() int64 { return t.token.Epoch }

// Token proves the term. It is the zero Token without leader election.
func (t Term) Token() fence.Token { return t.token }

// Takeover tells how the term came about.
func (t Term) Takeover() Takeover { return t.takeover }

// FailedParts names the parts of the work for which the term before this one was given up: what its LeadFunc's error
// said, if that or an error it wraps has a method FailedParts() []string. Names without commas only.
func (t Term) FailedParts() []string {
	if t.failedParts == "" {
		return nil
	}
	return strings.Split(t.failedParts, partsSeparator)
}

// LeadFunc does a term's work. ctx ends with the term, its cause wraps a Cause; the function then has the drain timeout
// to stop what it started and to join it, and returns only after that. Nothing of a term may outlive its LeadFunc: the
// next term starts as soon as it has returned.
//
// What it returns while ctx lives ends the term, and the process backs off, so that a replica that cannot do the work
// does not keep the lease: nil and an error that wraps StepDown step down, any other error is a failure (Fail says so
// before the function can return). An error that wraps ErrExit ends the election too, at any time. A panic counts as an
// error.
type LeadFunc func(ctx context.Context, term Term) error
