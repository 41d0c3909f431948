package election

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Notice reports an event in the life of an Elector that people should see outside of the log, for example as a
// Kubernetes Event.
type Notice struct {
	// Reason is one of the reasons below.
	Reason string
	// Warning says that somebody should look at it.
	Warning bool
	// Message continues a sentence whose subject is this process.
	Message string
	// Lease is the uid of the Lease; empty if it is not known. Name is its name.
	Lease types.UID
	Name  string
}

// The reasons of a Notice.
const (
	// Acquired: a term of this process has begun.
	Acquired = "LeaseAcquired"
	// Ended: a term of this process has ended by will: it stepped down on request, or the process stops.
	Ended = "TermEnded"
	// Lost: a term of this process has ended because it was deposed, was fenced, or could not renew.
	Lost = "LeaseLost"
	// Gave: a term of this process has ended because its own work failed or stepped down.
	Gave = "TermFailed"
	// OtherMode: this process stands by because the leaders use another mode than its own.
	OtherMode = "OtherElectionMode"
	// Unaccounted: the holder's process is not heard and may be dead, but its lease does not expire, or only after
	// far longer than this process's lease duration. An operator has to declare it dead.
	Unaccounted = "LeaderUnaccounted"
	// NoEpochLeft: the Lease has reached the highest epoch, so no further term can begin. An operator has to delete
	// the Lease.
	NoEpochLeft = "NoEpochLeft"
	// Unproved: this process has taken the lease from a holder whose address refuses connections, before the lease
	// expired and without a fence (Config.SucceedUnfenced). If that holder lives, both may have worked for a
	// moment.
	Unproved = "SucceededUnfenced"
	// Quarantine: this process does not campaign, because work of its last term has not stopped. QuarantineOver:
	// that work has stopped.
	Quarantine     = "Quarantined"
	QuarantineOver = "QuarantineEnded"
)

// notify calls Config.Notify.
func (e *Elector) notify(reason string, warning bool, format string, args ...any) {
	if e.cfg.Notify == nil {
		return
	}
	n := Notice{Name: e.cfg.Name, Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)}
	if seen, _ := e.view.Latest(); seen.Lease != nil {
		n.Lease = seen.Lease.UID
	}
	e.cfg.Notify(n)
}

// notifyEnd reports the end of a term.
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

// as returns how a Notice names a term.
func as(term Term) string {
	if term.Token().IsZero() {
		return " without election"
	}
	return fmt.Sprintf(" in epoch %d, as %s", term.Epoch(), term.Token().Holder)
}
