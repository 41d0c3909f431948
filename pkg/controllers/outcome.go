package controllers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// What a controller's Run, or its constructor, returns before its context has ended says what becomes of it. An error
// that wraps none of these, nil from Run, and a panic are failures: what they do is the controller's Policy.
var (
	// ErrDisabled: leave the controller, and those that need it, out of this term.
	ErrDisabled = errors.New("disabled")
	// ErrStepDown: end the term and let another replica try. It also ends a term of EveryReplica controllers, which
	// then all begin anew.
	ErrStepDown = errors.New("step down")
	// ErrExit: end the process, with a non-zero code and this error as its last words.
	ErrExit = errors.New("exit")
)

// Policy says what the failure of a controller does. StepDown and Exit act at the first failure: if they restarted the
// controller first, all three would do nearly the same. docs/SUPERVISION.md has the whole table.
type Policy string

const (
	// Restart constructs and runs the controller anew after a pause that grows; too many restarts in a while step down.
	Restart Policy = "restart"
	// StepDown ends the term at the first failure, so that another replica leads.
	StepDown Policy = "step-down"
	// Exit ends the process at the first failure, and if the controller is late to stop.
	Exit Policy = "exit"
)

// Policies are the policies of a registry's controllers.
type Policies struct {
	// Default is for all that Controllers does not name. Empty: Restart.
	Default Policy
	// Controllers has policies by controller name.
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

// Validate reports unknown policies, and names that are not in the registry.
func (p Policies) Validate(r *Registry) error {
	var errs []error
	known := []Policy{Restart, StepDown, Exit}
	if p.Default != "" && !slices.Contains(known, p.Default) {
		errs = append(errs, fmt.Errorf("unknown failure policy %q: want one of %q", p.Default, known))
	}
	names := r.names()
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
