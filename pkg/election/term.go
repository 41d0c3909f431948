package election

import (
	"context"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Term is one unbroken period of this process's leadership. Terms are comparable values; the zero Term is the one that
// runs without leader election.
type Term struct {
	token fence.Token
}

// Epoch is the term's number: it grows from term to term of one lease. It is 0 without leader election.
func (t Term) Epoch() int64 { return t.token.Epoch }

// Token proves the term. It is the zero Token without leader election.
func (t Term) Token() fence.Token { return t.token }

// LeadFunc does a term's work. ctx ends with the term, its cause wraps a Cause; the function then has the drain timeout
// to stop what it started and to join it, and returns only after that. Nothing of a term may outlive its LeadFunc: the
// next term starts as soon as it has returned.
//
// What it returns while ctx lives ends the term: nil steps down; an error steps down and backs off, so that a replica
// that cannot do the work does not keep the lease (Fail says so before the function can return); an error that wraps ErrExit ends the election too, at any time. A
// panic counts as an error.
type LeadFunc func(ctx context.Context, term Term) error
