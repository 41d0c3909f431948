// Package supervisor runs one term's controllers: it restarts, leaves out or gives up each by what it returns, and has
// joined them all before it returns.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
)

// Restart intensity, if Config says none: more than so many restarts of one controller in that time are too many.
const (
	DefaultRestartLimit  = 5
	DefaultRestartWindow = 5 * time.Minute
)

// Config is how Run supervises. The zero Config restarts what fails and waits for ever for what does not stop.
type Config struct {
	// DrainTimeout is how long after the end of its context a controller may still run before it is late. Zero: no
	// controller is ever late.
	DrainTimeout time.Duration
	// Policies say what the failure of a controller does.
	Policies controllers.Policies
	// A controller that fails more than RestartLimit times within RestartWindow ends the term. Zero stands for the
	// defaults.
	RestartLimit  int
	RestartWindow time.Duration

	// Tolerated are controllers whose failure does not end the term, because another replica could not run them either.
	// They are tried again, after pauses of up to a minute, until they work.
	Tolerated []string

	// StoreReachable, if set, tells whether controllers can get anything done. While they cannot, none stalls, and no
	// failure is one too many. It must not block.
	StoreReachable func() bool
	// Probe, if set, reaches this Run.
	Probe *Probe
	// OnEvent, if set, is called with each event when it happens, on any goroutine. It must not block.
	OnEvent func(Event)
}

// Event is what Run tells its caller while it runs.
type Event struct {
	Type EventType
	// Controller is whose event it is.
	Controller string
	// Effect says what follows a ControllerFailed or ControllerLate, in the words of docs/SUPERVISION.md.
	Effect string
	// Err is why; nil for ControllerRecovered. For TermFailed and ProcessFailed it is the *ControllerError.
	Err error
}

// EventType says what has happened.
type EventType string

const (
	// ControllerFailed: the controller has failed while the term lasts.
	ControllerFailed EventType = "controller failed"
	// ControllerRecovered: a tolerated controller has worked for the restart window. From now on its failure can end the
	// term.
	ControllerRecovered EventType = "controller recovered"
	// ControllerLate: the controller has not returned at the drain timeout.
	ControllerLate EventType = "controller late"
	// TermFailed: the term must end. Run may return much later, because it waits for all controllers.
	TermFailed EventType = "term failed"
	// ProcessFailed: the process must end. It is told at once, before any controller is stopped; TermFailed may follow.
	ProcessFailed EventType = "process failed"
)

// ControllerError says for which controller the term ended, and why. It wraps controllers.ErrExit if the process is to
// end, and controllers.ErrStepDown if that is what the controller returned.
type ControllerError struct {
	Controller string
	Err        error

	failedParts []string
}

func (e *ControllerError) Error() string {
	return fmt.Sprintf("controller %q: %v", e.Controller, e.Err)
}

// Unwrap returns what the controller returned, or a *controllers.Panic.
func (e *ControllerError) Unwrap() error { return e.Err }

func (e *ControllerError) exits() bool { return errors.Is(e.Err, controllers.ErrExit) }

// FailedParts names the controller, and those that were tolerated.
func (e *ControllerError) FailedParts() []string { return e.failedParts }

// Run runs a set of controllers until ctx ends or one of them ends the term, and returns only after every one of them
// has returned, however long that takes: the caller may start another term at once.
//
// All start at once, but those that Need others: they are constructed when those are ready (see controllers.Readier; one
// that is no Readier is ready when it is constructed). What becomes of a controller that returns, panics or stalls
// depends on the error and on its policy: see decide, and docs/SUPERVISION.md. While the term lasts none of this
// concerns the others. When a controller ends the term, the others are stopped in reverse order of need, those of one
// rank together, and at once after a second; when ctx ends, all stop at once. Run then returns the *ControllerError, or
// nil if it was ctx.
//
// Controllers that have not returned at the drain timeout are logged with the stacks of their goroutines, again from
// time to time, and once more when they have returned. Run cannot end them, and does not abandon them.
//
// Panics are contained on the goroutines of constructors and of Run only. A goroutine that a controller starts by itself
// has to contain its own; package loop does.
func Run(ctx context.Context, set []controllers.Descriptor, deps controllers.Deps, cfg Config) error {
	register()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &supervision{
		cfg: cfg, deps: deps, ctx: ctx, cancel: cancel,
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
	deps     controllers.Deps
	ctx      context.Context
	cancel   context.CancelCauseFunc
	children []*child

	escalated chan struct{} // closed when a controller has ended the term
	pings     chan struct{}
	over      chan struct{} // closed when all is joined

	mu sync.Mutex
	// failure is why the term ends: the first, unless a later one ends the process; nil if it is ctx.
	failure *ControllerError
}

// adopt makes the children.
func (s *supervision) adopt(set []controllers.Descriptor) error {
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
			Descriptor: d, s: s, tolerated: slices.Contains(s.cfg.Tolerated, d.Name),
			progress: progress{ready: make(chan struct{}), leftOut: make(chan struct{}), joined: make(chan struct{})},
			failures: intensity{limit: limit, window: window}, state: Stopped,
		}
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

// run returns when all children have been joined.
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

// undoTimeout bounds how long a term is undone in order.
const undoTimeout = time.Second

// undo stops the children in reverse order of need, until all are stopped or the time for that is over.
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

// escalate ends the term because of a controller, or the process.
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

// why returns why the term ends; nil if it is ctx.
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

// failedParts are the tolerated controllers, and one more.
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
