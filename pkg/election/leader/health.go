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
	if err := l.hasEnded(); err != nil {
		return err
	}
	if l.elector.Status().State == quarantined {
		return l.isQuarantined("Lease")
	}
	return nil
}

// hasEnded returns an error if what Start began has ended by itself.
func (p *process) hasEnded() error {
	select {
	case <-p.hasStopped(): // nil before Start
		if p.err != nil {
			return fmt.Errorf("the election for Lease %s/%s has ended: %w", p.cfg.Namespace, p.cfg.Name, p.err)
		}
	default:
	}
	return nil
}

// isQuarantined returns the error of a check while work under what is called so has not stopped.
func (p *process) isQuarantined(under string) error {
	return fmt.Errorf("the work of the last term under %s %s/%s has not stopped: this process does not campaign until it has, or is ended", under, p.cfg.Namespace, p.cfg.Name)
}
