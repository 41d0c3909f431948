package supervisor

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
)

// Status is how a controller is doing, and how it has done since the process started. It is a copy.
type Status struct {
	Controller string
	// State is one of those of regent_controller_state, Since when it was entered; zero if the controller has never
	// run.
	State string
	Since time.Time
	// Restarts, Panics and Stalls are what the metrics of these names count.
	Restarts, Panics, Stalls int
	// LastError is why the controller last failed, stalled or was left out, at Failed; nil if it has not. Effect is
	// what the supervisor did about it, in the words of the package comment; empty for a stall, which changes
	// nothing yet.
	LastError error
	Failed    time.Time
	Effect    string
	// Tolerated: its failure does not end the term.
	Tolerated bool
	// HeldBy is the group, such as a logical cluster, to which all its work belongs of which none was done for its
	// stall deadline; empty if it is not held so. A controller that is held works for others, and is not stalled.
	HeldBy string
	// Health is its latest report, at most some seconds old. It is zero while the controller does not run, and for
	// one that does not report.
	Health control.Health
}

// Status returns how the controllers are doing that the Runs with this Probe had, ordered by name. What a controller
// last failed at outlives its term. Any goroutine may call it at any time. It does not block.
func (p *Probe) Status() []Status {
	p.mu.Lock()
	records := make([]*record, 0, len(p.records))
	for _, r := range p.records {
		records = append(records, r)
	}
	p.mu.Unlock()
	all := make([]Status, len(records))
	for n, r := range records {
		all[n] = r.read()
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Controller, b.Controller) })
	return all
}

// record returns what is remembered of a controller. A Run without a Probe remembers nothing from term to term.
func (p *Probe) record(controller string) *record {
	if p == nil {
		return newRecord(controller)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records[controller] == nil {
		p.records[controller] = newRecord(controller)
	}
	return p.records[controller]
}

// record remembers how a controller is doing. Its methods may be called on any goroutine.
type record struct {
	mu     sync.Mutex
	status Status
}

func newRecord(controller string) *record {
	return &record{status: Status{Controller: controller, State: string(stateStopped)}}
}

func (r *record) read() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.status
	switch state(out.State) {
	case stateStarting, stateRunning, stateStalled, stateLate:
	default:
		out.Health = control.Health{} // the last report may have come when Run was over
	}
	return out
}

func (r *record) change(do func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(&r.status)
}

func (r *record) became(s state) {
	r.change(func(now *Status) { now.State, now.Since = string(s), time.Now() })
}

func (r *record) failed(err error, e effect) {
	r.change(func(now *Status) { now.LastError, now.Failed, now.Effect = err, time.Now(), string(e) })
}

func (r *record) tolerates(so bool)        { r.change(func(now *Status) { now.Tolerated = so }) }
func (r *record) reports(h control.Health) { r.change(func(now *Status) { now.Health = h }) }
func (r *record) restarted()               { r.change(func(now *Status) { now.Restarts++ }) }
func (r *record) panicked()                { r.change(func(now *Status) { now.Panics++ }) }

// heldBy returns who has held it until now.
func (r *record) heldBy(group string) (was string) {
	r.change(func(now *Status) { was, now.HeldBy = now.HeldBy, group })
	return was
}

func (r *record) stalled(err error) {
	r.change(func(now *Status) { now.Stalls++ })
	r.failed(err, "")
}

// Some values of Status.State. Stopped is also that of a controller that has never run.
const (
	Stopped = string(stateStopped)
	Running = string(stateRunning)
	Stalled = string(stateStalled)
)

// States are all values of Status.State, the worst first.
var States = []string{
	string(stateLate), string(stateFailed), Stalled, string(stateRestarting), string(stateWaiting), string(stateStarting), Running, string(stateDisabled), Stopped,
}

// longestStacks is how long the stacks of a controller may be, in bytes.
const longestStacks = 1 << 20

// Stacks returns the stacks of a controller's goroutines, in the format of the profiler: equal stacks once, with their
// number. It is empty if the controller has none.
func Stacks(controller string) string {
	stacks := goroutines([]string{controller})[controller]
	if len(stacks) > longestStacks {
		stacks = stacks[:longestStacks] + "\n(there are more)\n"
	}
	return stacks
}
