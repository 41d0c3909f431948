package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// These errors say what happens to a controller whose Run or constructor returns before its context has ended.
// Everything else is a failure: any other error, nil from Run, and a panic. The controller's Policy says what a failure
// does.
var (
	// ErrDisabled leaves the controller, and those that need it, out of this term.
	ErrDisabled = errors.New("disabled")
	// ErrStepDown ends the term and lets another replica lead. A term of EveryReplica controllers ends too; they
	// all start again.
	ErrStepDown = errors.New("step down")
	// ErrExit ends the election: Elector.Run returns an error that wraps election.ErrExit and this one. The program
	// should then end with a non-zero exit code, as Regent's server does.
	ErrExit = errors.New("exit")
)

// Policy says what the failure of a controller does. StepDown and Exit act at the first failure: if they restarted the
// controller first, all three would do nearly the same. Package supervisor has the whole table.
type Policy string

const (
	// Restart constructs and runs the controller again after a pause. The pauses grow. After too many restarts the
	// replica steps down.
	Restart Policy = "restart"
	// StepDown ends the term at the first failure, so that another replica leads.
	StepDown Policy = "step-down"
	// Exit does at the first failure what ErrExit does, and also if the controller is late to stop.
	Exit Policy = "exit"
)

// Policies are the policies of a registry's controllers.
type Policies struct {
	// Default applies to all controllers that Controllers does not name. Empty: Restart.
	Default Policy
	// Controllers has policies by the name of the controller.
	Controllers map[string]Policy
}

// Of returns the policy of a controller.
func (p Policies) Of(controller string) Policy {
	if policy, ok := p.Controllers[controller]; ok {
		return policy
	}
	if p.Default != "" {
		return p.Default
	}
	return Restart
}

// Validate returns an error for unknown policies, and for controllers that are not among names, those of a registry.
func (p Policies) Validate(names []string) error {
	var errs []error
	known := []Policy{Restart, StepDown, Exit}
	if p.Default != "" && !slices.Contains(known, p.Default) {
		errs = append(errs, fmt.Errorf("unknown failure policy %q: want one of %q", p.Default, known))
	}
	for _, controller := range slices.Sorted(maps.Keys(p.Controllers)) {
		policy := p.Controllers[controller]
		if !slices.Contains(names, controller) {
			errs = append(errs, fmt.Errorf("a failure policy for controller %q, which is not registered: want one of %q", controller, names))
		}
		if !slices.Contains(known, policy) {
			errs = append(errs, fmt.Errorf("unknown failure policy %q for controller %q: want one of %q", policy, controller, known))
		}
	}
	return errors.Join(errs...)
}
