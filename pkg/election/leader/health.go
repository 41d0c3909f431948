package leader

import (
	"fmt"
	"net/http"
)

// quarantined is the state of an Elector that this is about, in the words of the diagram there.
const quarantined = "quarantined"

// Name is that of the health check.
func (*Leader) Name() string { return "leader" }

// Check is a health check for servers of Kubernetes and managers of controller-runtime. It returns an error if what
// Start began has ended by itself, or if the work of a term that is over has not stopped in time: then this process
// leads no more, or not before that work has stopped. A standby is healthy. Any goroutine may call it at any time.
func (l *Leader) Check(*http.Request) error {
	select {
	case <-l.Done(): // nil before Start
		if l.err != nil {
			return fmt.Errorf("the election for Lease %s/%s has ended: %w", l.cfg.Namespace, l.cfg.Name, l.err)
		}
	default:
	}
	if l.elector.Status().State == quarantined {
		return fmt.Errorf("the work of the last term under Lease %s/%s has not stopped: this process does not campaign until it has, or is ended", l.cfg.Namespace, l.cfg.Name)
	}
	return nil
}
