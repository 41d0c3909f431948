// Package supervisor runs the controllers of one term. What a controller returns decides whether it is restarted, left
// out or given up. All have been joined when Run returns.
//
// # Outcomes, policies and effects
//
// The rows are what happens to a controller or its constructor, the columns control.Policy:
//
//	                                           restart             step-down           exit
//	an error, nil from Run, a panic            restart             step down           exit
//	a stall of twice its StallDeadline         restart             step down           exit
//	too many of these (Config.RestartLimit)    step down           step down           exit
//	a stall that cancelling does not end       step down           step down           exit
//	control.ErrDisabled                        left out            left out            left out
//	control.ErrStepDown                        step down           step down           step down
//	control.ErrExit                            exit                exit                exit
//	any failure if tolerated                   failed, tried again failed, tried again exit
//	returns anything after the term's end      ends with the term  ends with the term  ends with the term
//	panics or is late after the term's end     ends with the term  ends with the term  exit
//
// A restart is a new construction, after a pause of 200 ms that doubles up to a minute; a controller that has worked
// for RestartWindow begins anew. Left out means until the next term, with those that need it and have not started. Step
// down ends the term: another replica leads, and this one rests before it campaigns again. Exit ends the term and then
// Elector.Run, with an error that wraps election.ErrExit. A controller is tolerated if this replica and those that led
// right before have stepped down for it: the term goes on without it, and tries it again.
//
// In Regent's repository, docs/SUPERVISION.md has the rest.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
)

// The default restart intensity: a controller may be restarted DefaultRestartLimit times within DefaultRestartWindow.
const (
	DefaultRestartLimit  = 5
	DefaultRestartWindow = 5 * time.Minute
)

// Config says how Run supervises. The zero Config restarts every controller that fails, and waits for ever for one that
// does not stop.
type Config struct {
	// DrainTimeout is how long a controller may run after its context has ended before it is late. Zero: for a
	// Leader as long as the elector gives the term (election.Term.DrainTimeout), or 5 s without election; for Run
	// it is never late.
	DrainTimeout time.Duration
	// Policies say what the failure of a controller does.
	Policies control.Policies
	// A controller that fails more than RestartLimit times within RestartWindow ends the term. Zero stands for the
	// defaults.
	RestartLimit  int
	RestartWindow time.Duration

	// Tolerated are controllers whose failure does not end the term, because other replicas could not run them
	// either. They are tried again, after pauses of up to a minute.
	Tolerated []string
	// OfferAfter is how long a Leader tolerates failing controllers before it offers the lease to other replicas.
	// Zero: DefaultOfferAfter. Run does not use it.
	OfferAfter time.Duration

	// StoreReachable, if set, says whether etcd answers. While it does not, no controller counts as stalled, and
	// failures do not count towards RestartLimit. It must not block.
	StoreReachable func() bool
	// Probe, if set, reaches this Run.
	Probe *Probe
	// OnEvent, if set, is called with each event, on any goroutine. It must not block.
	OnEvent func(Event)
}

// Event is something that Run reports while it runs.
type Event struct {
	Type EventType
	// Controller is the name of the controller concerned.
	Controller string
	// Effect says what the supervisor does about a ControllerFailed or ControllerLate, in the words of the package
	// comment: "restart", "left out", "step down", "exit", "ends with the term" or "failed, tried again".
	Effect string
	// Err is the reason. It is nil for ControllerRecovered, and the *ControllerError for TermFailed and
	// ProcessFailed.
	Err error
}

// EventType is the type of an Event.
type EventType string

const (
	// ControllerFailed: a controller has failed, and not because the term ends.
	ControllerFailed EventType = "controller failed"
	// ControllerRecovered: a tolerated controller has worked for the restart window. Its next failure can end the
	// term.
	ControllerRecovered EventType = "controller recovered"
	// ControllerLate: a controller has not returned at the drain timeout.
	ControllerLate EventType = "controller late"
	// TermFailed: the term must end. Run may return much later, because it waits for all controllers.
	TermFailed EventType = "term failed"
	// TermTolerates: a Leader begins a term with Tolerated controllers. Err names them; Controller is empty.
	TermTolerates EventType = "term tolerates controllers"
	// ProcessFailed: the process must end. It is reported before any controller is stopped. TermFailed may follow.
	ProcessFailed EventType = "process failed"
)

// ControllerError says for which controller a term ended, and why. It wraps control.ErrExit if the process must end,
// and control.ErrStepDown if the controller returned that.
type ControllerError struct {
	Controller string
	Err        error

	failedParts []string
}

func (e *ControllerError) Error() string {
	return fmt.Sprintf("controller %q: %v", e.Controller, e.Err)
}

// Unwrap returns what the controller returned, or a *control.Panic.
func (e *ControllerError) Unwrap() error { return e.Err }

func (e *ControllerError) exits() bool { return errors.Is(e.Err, control.ErrExit) }

// FailedParts names the controller and all tolerated controllers. Package election passes the names on to the next
// leader.
func (e *ControllerError) FailedParts() []string { return e.failedParts }

// Run runs a set of controllers until ctx ends or one of them ends the term. It returns only when all of them have
// returned, however long that takes, so the caller may start another term at once.
//
// All controllers start at once, except those that Need others: they are constructed when the needed ones are ready
// (see control.Readier; a controller that is no Readier is ready once it is constructed). If a controller returns,
// panics or stalls, the error and the controller's policy decide what happens: see the package comment. The other
// controllers are not affected while the term lasts. If a controller ends the term, the others are stopped in reverse
// order of need, those of equal rank together, and all of them after a second. If ctx ends, all stop at once. Run
// returns the *ControllerError of the controller that ended the term, or nil if ctx ended.
//
// Controllers that have not returned at the drain timeout are logged with the stacks of their goroutines, again from
// time to time, and once more when they have returned. Run cannot end them, and does not abandon them.
//
// Run recovers panics only on the goroutines on which it calls constructors and Run. A goroutine that a controller
// starts must recover its own panics; those of package loop do.
func Run[D any](ctx context.Context, set []control.Descriptor[D], deps D, cfg Config) error {
	all := make([]described, len(set))
	for n, d := range set {
		all[n] = described{
			Name: d.Name, Needs: d.Needs, StallDeadline: d.StallDeadline,
			construct: func(ctx context.Context) (control.Controller, error) { return d.New(ctx, deps) },
		}
	}
	return run(ctx, all, cfg)
}

// described is a controller whose constructor has what it needs.
type described struct {
	Name          string
	Needs         []string
	StallDeadline time.Duration
	construct     func(context.Context) (control.Controller, error)
}

func run(ctx context.Context, set []described, cfg Config) error {
	lateGauge.Add(0) // it is there for whoever has controllers
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &supervision{
		cfg: cfg, ctx: ctx, cancel: cancel,
		escalated: make(chan struct{}), pings: make(chan struct{}), over: make(chan struct{}),
	}
	if err := s.adopt(set); err != nil {
		return err
	}
	cfg.Probe.set(s)
	defer cfg.Probe.set(nil)

	joined := make(chan struct{})
	var watchers sync.WaitGroup
	watchers.Go(func() { s.watchDrain(joined) })
	watchers.Go(func() { s.watchHealth(joined) })
	s.run() //nolint:contextcheck // each child has its own
	close(joined)
	watchers.Wait()
	close(s.over)
	if failure := s.why(); failure != nil {
		return failure
	}
	return nil
}

// supervision is the state of one Run.
type supervision struct {
	cfg      Config
	ctx      context.Context
	cancel   context.CancelCauseFunc
	children []*child

	escalated chan struct{} // closed when a controller has ended the term
	pings     chan struct{}
	over      chan struct{} // closed when all is joined

	mu sync.Mutex
	// failure is why the term ends: the first failure, or a later one that ends the process. Nil if ctx has ended.
	failure *ControllerError
}

// adopt makes the children.
func (s *supervision) adopt(set []described) error {
	byName := make(map[string]*child, len(set))
	limit, window := s.cfg.RestartLimit, s.cfg.RestartWindow
	if limit == 0 {
		limit = DefaultRestartLimit
	}
	if window == 0 {
		window = DefaultRestartWindow
	}
	for _, d := range set {
		ctx := klog.NewContext(s.ctx, klog.FromContext(s.ctx).WithValues("controller", d.Name))
		c := &child{
			described: d, s: s, tolerated: slices.Contains(s.cfg.Tolerated, d.Name),
			progress: progress{ready: make(chan struct{}), leftOut: make(chan struct{}), joined: make(chan struct{})},
			failures: intensity{limit: limit, window: window}, state: stateStopped,
			record: s.cfg.Probe.record(d.Name),
		}
		c.record.tolerates(c.tolerated)
		c.ctx, c.stop = context.WithCancelCause(ctx)
		s.children = append(s.children, c)
		byName[d.Name] = c
	}
	for _, c := range s.children {
		for _, need := range c.Needs {
			if byName[need] == nil {
				return &ControllerError{Controller: c.Name, Err: fmt.Errorf("needs %q, which is not in the set: run a set of a validated registry", need)}
			}
			c.needs = append(c.needs, byName[need])
		}
	}
	for _, c := range s.children {
		c.depth()
	}
	return nil
}

// run starts all children and returns when they have been joined.
func (s *supervision) run() {
	for _, c := range s.children {
		go c.run() // joined below
	}
	select {
	case <-s.ctx.Done():
	case <-s.escalated:
		failure := s.why()
		s.undo(failure)
		s.cancel(failure)
		s.tell(Event{Type: TermFailed, Controller: failure.Controller, Err: failure})
	}
	for _, c := range s.children {
		<-c.joined
		c.stop(nil)
	}
}

// undoTimeout is how long children are stopped in order before all are stopped at once.
const undoTimeout = time.Second

// undo stops the children in reverse order of need, until all have stopped or undoTimeout has passed.
func (s *supervision) undo(cause error) {
	timeout := time.NewTimer(undoTimeout)
	defer timeout.Stop()
	byRank := slices.SortedFunc(slices.Values(s.children), func(a, b *child) int { return b.rank - a.rank })
	for len(byRank) > 0 {
		n := slices.IndexFunc(byRank, func(c *child) bool { return c.rank != byRank[0].rank })
		if n < 0 {
			n = len(byRank)
		}
		for _, c := range byRank[:n] {
			c.stop(cause)
		}
		for _, c := range byRank[:n] {
			select {
			case <-c.joined:
			case <-timeout.C:
				return
			case <-s.ctx.Done():
				return
			}
		}
		byRank = byRank[n:]
	}
}

// escalate ends the term, or the process, because of a controller.
func (s *supervision) escalate(failure *ControllerError) {
	if failure.exits() {
		s.tell(Event{Type: ProcessFailed, Controller: failure.Controller, Err: failure})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failure == nil:
		s.failure = failure
		close(s.escalated)
	case failure.exits() && !s.failure.exits():
		s.failure = failure
	}
}

// why returns the failure that ends the term, or nil if there is none.
func (s *supervision) why() *ControllerError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *supervision) tell(e Event) {
	if s.cfg.OnEvent != nil {
		s.cfg.OnEvent(e)
	}
}

// failedParts returns the names of the tolerated controllers and of one more, sorted.
func (s *supervision) failedParts(name string) []string {
	parts := []string{name}
	for _, c := range s.children {
		if c.isTolerated() && c.Name != name {
			parts = append(parts, c.Name)
		}
	}
	slices.Sort(parts)
	return parts
}
