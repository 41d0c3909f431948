package terms

import (
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// Status is how a controller of the registry is doing on this replica.
type Status struct {
	Scope controllers.Scope
	supervisor.Status
}

// Status returns how all controllers of the registry are doing, in its order. One that has not run yet is stopped. It
// does not block.
func (r *Runner) Status() []Status {
	known := map[string]supervisor.Status{}
	for _, probe := range r.probes {
		for _, s := range probe.Status() {
			known[s.Controller] = s
		}
	}
	all := r.cfg.Registry.Scoped(controllers.Scopes...)
	out := make([]Status, len(all))
	for n, d := range all {
		out[n] = Status{d.Scope, supervisor.Status{Controller: d.Name, State: supervisor.Stopped}}
		if s, ok := known[d.Name]; ok {
			out[n].Status = s
		}
	}
	return out
}
