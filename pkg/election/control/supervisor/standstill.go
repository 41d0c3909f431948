package supervisor

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
)

// standstill measures how long a controller has held work and finished none of it: what has just happened and what its
// sweep has found each by itself, because neither may stand still behind the other.
type standstill struct{ fresh, swept stallClock }

// observe records a report, elapsed after the last one. It returns for how long the controller has stood still, and, if
// it does not, for how long one group alone has held it, and which one.
//
// One group alone is no proof that the controller hangs: perhaps it waits for that tenant's machine. Two groups are.
func (s *standstill) observe(h control.Health, elapsed time.Duration, reachable bool) (idle, alone time.Duration, by string) {
	if !reachable {
		elapsed = 0
	}
	sweep := h.Sweep
	s.fresh.observe(h.Pending-sweep.Pending, h.Returned-sweep.Returned, h.Only, elapsed)
	s.swept.observe(sweep.Pending, sweep.Returned, sweep.Only, elapsed)
	idle = max(s.fresh.idle, s.swept.idle)
	if s.fresh.by != "" && s.swept.by != "" && s.fresh.by != s.swept.by {
		idle = max(idle, min(s.fresh.held, s.swept.held)) // each holds one half of the work
	}
	switch {
	case idle > 0:
		return idle, 0, ""
	case s.fresh.held >= s.swept.held:
		return 0, s.fresh.held, s.fresh.by
	default:
		return 0, s.swept.held, s.swept.by
	}
}

// stallClock measures for how long work has been held, and none of it finished: by several groups, or by one alone.
type stallClock struct {
	returned   uint64
	idle, held time.Duration
	by         string // who holds it alone now
}

func (c *stallClock) observe(pending int, returned uint64, only string, elapsed time.Duration) {
	c.by = only
	switch {
	case pending <= 0, returned != c.returned:
		*c = stallClock{returned: returned}
	case only != "":
		c.held += elapsed
	default:
		c.idle += elapsed
	}
}

// holds tells that one group alone has held an instance for the stall deadline, or that it does no longer. It is called
// with each report, and when the instance is over.
func (c *child) holds(i *instance, by string, held, deadline time.Duration) {
	c.mu.Lock()
	if i.over || deadline < 0 || held < deadline {
		by = ""
	}
	was := c.record.heldBy(by)
	showHeld(c.Name, was != "", by != "")
	c.mu.Unlock()
	switch {
	case by == was:
	case by != "":
		klog.FromContext(c.ctx).Error(nil, "Controller is held: all its work is of one group, and none of it gets done. It would work for others, so the term goes on",
			"group", by, "for", held.Round(time.Second), "stacks", goroutines([]string{c.Name})[c.Name])
	default:
		klog.FromContext(c.ctx).Info("Controller is no longer held by one group", "group", was)
	}
}
