package election

import (
	"context"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Term is one unbroken period of this process's leadership. Terms are comparable. The zero Term is the one of a process
// that leads without leader election.
type Term struct {
	token       fence.Token
	failedParts string // joined, so that Terms are comparable
	takeover    Takeover
	drain       time.Duration
	fenced      bool
}

const partsSeparator = ","

// Epoch returns the number of the term, which grows with each term of a Lease. It is 0 without leader election.
func (t Term) Epoch() int64 { return t.token.Epoch }

// Token returns the fencing token of the term. It is zero without leader election.
func (t Term) Token() fence.Token { return t.token }

// Takeover says why and when the term began.
func (t Term) Takeover() Takeover { return t.takeover }

// DrainTimeout returns how long the term's work may take to return after its context has ended, before the process is
// quarantined: that of the elector's Config. It is 0 without leader election.
func (t Term) DrainTimeout() time.Duration { return t.drain }

// Fenced reports whether Config.Fenced is set: the server refuses writes of terms that are over, if they carry the
// term's token. It is false without leader election.
func (t Term) Fenced() bool { return t.fenced }

// FailedParts returns for which parts of its work the previous leader gave the lease up. The previous term's LeadFunc
// names them: the error that it returned, or one that this error wraps, has a method FailedParts() []string. Names must
// not contain commas.
func (t Term) FailedParts() []string {
	if t.failedParts == "" {
		return nil
	}
	return strings.Split(t.failedParts, partsSeparator)
}

// LeadFunc does the work of one term. Its ctx ends with the term, and context.Cause(ctx) wraps a Cause. The function
// then has the drain timeout to stop and join everything that it started. It must return only after that, because the
// next term may begin as soon as it has returned.
//
// If the function returns before ctx has ended, the term ends:
//
//   - nil, or an error that wraps StepDown or Fenced: the leader steps down, or was fenced.
//   - an error that wraps ErrExit: the election ends, too. This also holds after ctx has ended.
//   - any other error, or a panic: the term has failed.
//
// After a failure, or after a step down by the function itself, the process does not campaign for a growing time. So a
// replica that cannot do the work does not keep the lease. Fail ends a term before its function can return.
type LeadFunc func(ctx context.Context, term Term) error
