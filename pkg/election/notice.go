package election

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Notice tells of a moment in an elector's life that people should find out about, beyond its log.
type Notice struct {
	// Reason is one word in CamelCase, one of those below.
	Reason string
	// Warning: somebody should look.
	Warning bool
	// Message is for people: what this process does, without a subject.
	Message string
	// Lease is the uid of the Lease, if it is known.
	Lease types.UID
}

// Reasons of notices.
const (
	// Acquired: a term of this process has begun.
	Acquired = "LeaseAcquired"
	// Ended: a term of this process has ended by will: a step down on request, or the process stops.
	Ended = "TermEnded"
	// Lost: a term of this process has ended because it was deposed or fenced, or could not renew.
	Lost = "LeaseLost"
	// Gave: a term of this process has ended because of its own work, which failed or stepped down by itself.
	Gave = "TermFailed"
	// OtherMode: this process stands by because leaders lead in another mode than its own.
	OtherMode = "OtherElectionMode"
	// Unaccounted: the lease is held by a process that is not heard, and may be dead, for life or for far longer than this
	// process's leases last. An operator has to say so.
	Unaccounted = "LeaderUnaccounted"
	// NoEpochLeft: the Lease has the last epoch, and no term can begin on it any more. An operator has to delete it.
	NoEpochLeft = "NoEpochLeft"
	// Quarantine: work of an ended term goes on, so that this process does not campaign; QuarantineOver: not any more.
	Quarantine     = "Quarantined"
	QuarantineOver = "QuarantineEnded"
)

// notify tells Config.Notify.
func (e *Elector) notify(reason string, warning bool, format string, args ...any) {
	if e.cfg.Notify == nil {
		return
	}
	n := Notice{Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)}
	if seen, _ := e.view.Latest(); seen.Lease != nil {
		n.Lease = seen.Lease.UID
	}
	e.cfg.Notify(n)
}

// notifyEnd tells of a term's end.
func (e *Elector) notifyEnd(term Term, cause error) {
	reason, warning := Ended, false
	switch c := causeOf(cause); {
	case c == Deposed, c == RenewDeadline, c == Fenced:
		reason, warning = Lost, true
	case byItsOwnWork(cause):
		reason, warning = Gave, true
	}
	e.notify(reason, warning, "no longer leads%s: %s", as(term), brief(cause))
}

// as says how a term can be recognised.
func as(term Term) string {
	if term.Token().IsZero() {
		return " without election"
	}
	return fmt.Sprintf(" in epoch %d, as %s", term.Epoch(), term.Token().Holder)
}
