package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
)

// state is the state of a controller. A metric has a series for each state.
//
//	          Needs ready            constructed           ready
//	Waiting ---------------> Starting -------------------------> Running <--> Stalled
//	   ^                        |                                   |            |
//	   |                        +-----------------+-----------------+------------+
//	   |  after a pause                           | what it returns, see decide
//	   +------------------- Restarting <----------+----> Disabled, Failed, Stopped
//	   +------------------- Failed     <----------+   (a tolerated one is tried again, and shows Failed)
//
// Without a term all controllers are Stopped. Late is a controller that has not stopped in time.
type state string

// The states of a controller.
const (
	stateStopped    state = "stopped"
	stateWaiting    state = "waiting"
	stateStarting   state = "starting"
	stateRunning    state = "running"
	stateStalled    state = "stalled"
	stateRestarting state = "restarting"
	stateFailed     state = "failed"
	stateDisabled   state = "disabled"
	stateLate       state = "late"
)

var states = []state{stateStopped, stateWaiting, stateStarting, stateRunning, stateStalled, stateRestarting, stateFailed, stateDisabled, stateLate}

// child is one controller in one term, through all its restarts. Its goroutine owns all fields that mu does not guard.
type child struct {
	described
	s     *supervision
	needs []*child
	// rank is the length of the longest chain of needs. Children of a higher rank stop first.
	rank int
	// ctx ends with the term, or earlier when stop is called to undo the term in order.
	ctx  context.Context
	stop context.CancelCauseFunc
	progress
	failures intensity
	record   *record

	mu        sync.Mutex
	state     state
	tolerated bool
	watched   *instance     // the instance that runs now, or nil
	swept     control.Sweep // as the metrics show it
}

// progress says how far a child has come. Each channel is closed once.
type progress struct {
	ready   chan struct{} // closed when an instance is ready for the first time
	leftOut chan struct{} // closed when the child takes no further part in the term
	joined  chan struct{} // closed when nothing of the child runs or will run
}

// run runs the controller for a term, through all its restarts.
func (c *child) run() {
	defer close(c.joined)
	defer c.become(stateStopped)
	for attempt := 0; c.awaitNeeds(); attempt++ {
		starts.Inc(c.Name)
		if attempt > 0 {
			restartsTotal.Inc(c.Name)
			c.record.restarted()
		}
		again, pause := c.once()
		if !again || !c.sleep(pause) {
			return
		}
	}
}

// awaitNeeds waits until the needed controllers are ready. It returns false if the child must not start.
func (c *child) awaitNeeds() bool {
	c.become(stateWaiting)
	for _, need := range c.needs {
		if !c.awaitNeed(need) {
			return false
		}
		select {
		case <-need.leftOut: // it may have been ready before
			klog.FromContext(c.ctx).Info("Controller is left out of this term, because a controller that it needs is", "needs", need.Name)
			c.leave()
			return false
		default:
		}
	}
	return c.ctx.Err() == nil
}

// awaitNeed returns true when need is ready or left out, and false if the child must stop. It logs a need that takes
// long.
func (c *child) awaitNeed(need *child) bool {
	began, reminder := time.Now(), firstReminder
	timer := time.NewTimer(reminder)
	defer timer.Stop()
	for {
		select {
		case <-need.ready:
			return true
		case <-need.leftOut:
			return true
		case <-c.ctx.Done():
			return false
		case <-timer.C:
			klog.FromContext(c.ctx).Error(nil, "Controller still waits for a controller that it needs", "needs", need.Name, "which is", string(need.where()), "for", time.Since(began).Round(time.Second))
			reminder *= 2
			timer.Reset(reminder)
		}
	}
}

func (c *child) where() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *child) leave() {
	c.become(stateDisabled)
	close(c.leftOut)
	<-c.ctx.Done() // the state shows until the term ends
}

// once constructs the controller and runs it until it ends. It says whether to do so again, and after which pause.
func (c *child) once() (again bool, pause time.Duration) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.become(stateStarting)
	var made control.Controller
	w := c.begin(ctx, constructing, &instance{cancel: cancel, reporter: constructor{}}, func(ctx context.Context) (err error) {
		made, err = c.construct(ctx)
		if err == nil && made == nil {
			err = errors.New("its constructor returned neither a controller nor an error")
		}
		return err
	})
	if done, again, pause := c.await(w); done || c.ctx.Err() != nil {
		return again, pause
	}
	klog.FromContext(ctx).V(2).Info("Controller starts")
	reporter, _ := made.(control.Reporter)
	w = c.begin(ctx, starting, &instance{cancel: cancel, reporter: reporter}, made.Run)
	w.ready = alwaysReady
	if readier, ok := made.(control.Readier); ok {
		var err error
		if w.ready, err = readyOf(readier); err != nil {
			cancel(err)
		}
	}
	_, again, pause = c.await(w)
	return again, pause
}

// work is a call of a controller's code.
type work struct {
	ctx    context.Context
	moment moment
	began  time.Time
	ended  <-chan error
	ready  <-chan struct{} // nil for a constructor, and once the controller is ready
}

// begin calls the constructor or Run, and lets the health watcher watch it.
func (c *child) begin(ctx context.Context, m moment, i *instance, code func(context.Context) error) *work {
	what := "Run"
	if m == constructing {
		what = "its constructor"
	}
	ended := c.s.call(ctx, c.Name, what, func(ctx context.Context) error {
		defer c.end(i)
		return code(ctx)
	})
	c.watch(i)
	return &work{ctx: ctx, moment: m, began: time.Now(), ended: ended}
}

// await returns when the code has ended. over is false for a constructor that has made a controller.
func (c *child) await(w *work) (over, again bool, pause time.Duration) {
	defer c.watch(nil)
	aborted, overdue := w.ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-w.ready:
			w.moment, w.ready = running, nil
			c.nowReady()
		case <-aborted:
			aborted = nil
			if c.ctx.Err() == nil && c.s.cfg.DrainTimeout > 0 {
				overdue = time.After(c.s.cfg.DrainTimeout)
			}
		case <-overdue:
			if c.ctx.Err() != nil {
				break // the term has ended: watchDrain reports the controller
			}
			again, pause = c.judge(w, stuck, w.moment, context.Cause(w.ctx))
			err := <-w.ended
			c.judge(w, outcomeOf(w.ctx, err), draining, err)
			return true, again && c.ctx.Err() == nil, pause
		case err := <-w.ended:
			if w.moment == constructing && err == nil && w.ctx.Err() == nil {
				return false, false, 0
			}
			again, pause = c.judge(w, outcomeOf(w.ctx, err), w.moment, c.explained(w.ctx, err))
			return true, again, pause
		}
	}
}

// readyOf calls Ready, which is the controller's code, on the supervisor's goroutine, and recovers a panic.
func readyOf(r control.Readier) (ready <-chan struct{}, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = control.Recovered("Ready", value)
		}
	}()
	return r.Ready(), nil
}

// explained returns why code has ended that returned err.
func (c *child) explained(ctx context.Context, err error) error {
	switch {
	case c.ctx.Err() != nil:
		return err
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
		return context.Cause(ctx) // the supervisor cancelled it
	case err == nil:
		return errEarly
	default:
		return err
	}
}

// depth computes and returns the rank.
func (c *child) depth() int {
	if c.rank == 0 {
		for _, need := range c.needs {
			c.rank = max(c.rank, 1+need.depth())
		}
	}
	return c.rank
}

var alwaysReady = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// judge handles an outcome: it logs and counts it, and carries out its effect.
func (c *child) judge(w *work, o outcome, m moment, err error) (again bool, pause time.Duration) {
	if c.ctx.Err() != nil {
		m = draining
	}
	var exhausted bool
	if m != draining && o != disabled && o != exits {
		worked := time.Since(w.began)
		stall, isStall := context.Cause(w.ctx).(*stallError) //nolint:errorlint // a stall of another controller comes wrapped
		if isStall {
			worked -= stall.idle
		}
		pause, exhausted = c.failures.failed(time.Now(), worked, isStall, !c.s.reachable())
		pause += rand.N(1 + time.Duration(pauseJitter*float64(pause)))
	}
	e := decide(o, m, circumstances{policy: c.policy(), exhausted: exhausted, tolerated: c.isTolerated()})
	logger := klog.FromContext(w.ctx).WithValues("during", string(m))
	if e != ends {
		logger = logger.WithValues("effect", string(e))
	}
	if e == restarts || e == perseveres {
		logger = logger.WithValues("pause", pause)
	}
	if m != draining && (e == restarts || exhausted) { // why it is not restarted this time
		logger = logger.WithValues("failures", len(c.failures.recent), "within", c.failures.window, "limit", c.failures.limit)
	}
	c.log(logger, o, m, err)
	if m != draining {
		c.record.failed(err, e)
	}
	if m != draining && e != leavesOut {
		c.s.tell(Event{Type: ControllerFailed, Controller: c.Name, Effect: string(e), Err: err})
	}
	switch e {
	case restarts:
		c.become(stateRestarting)
		return true, pause
	case perseveres:
		c.become(stateFailed)
		return true, pause
	case leavesOut:
		c.leave()
	case endsTerm, endsProcess:
		c.become(stateFailed)
		c.escalate(e, err)
		<-c.ctx.Done() // the state shows until the term ends
	}
	return false, 0
}

// overdue handles a controller that has not returned at the drain timeout.
func (c *child) overdue() {
	e := decide(late, draining, circumstances{policy: c.policy()})
	c.record.failed(errLate, e)
	c.s.tell(Event{Type: ControllerLate, Controller: c.Name, Effect: string(e), Err: errLate})
	if e == endsProcess {
		c.escalate(e, errLate)
	}
}

// escalate ends the term, or the process, because of err.
func (c *child) escalate(e effect, err error) {
	if e == endsProcess && !errors.Is(err, control.ErrExit) {
		err = fmt.Errorf("%w: failure policy %q: %w", control.ErrExit, control.Exit, err)
	}
	c.s.escalate(&ControllerError{Controller: c.Name, Err: err, failedParts: c.s.failedParts(c.Name)})
}

func (c *child) policy() control.Policy { return c.s.cfg.Policies.Of(c.Name) }

// log logs an outcome once, and counts panics.
func (c *child) log(logger klog.Logger, o outcome, m moment, err error) {
	p, isPanic := errors.AsType[*control.Panic](err)
	switch {
	case isPanic:
		panics.Inc(c.Name)
		c.record.panicked()
		logger.Error(err, "Controller panicked", "stack", string(p.Stack))
	case o == panicked:
		panics.Inc(c.Name)
		c.record.panicked()
		logger.Error(err, "Controller failed")
	case m == draining && (o == returned || o == stalled):
		logger.V(2).Info("Controller has stopped")
	case m == draining:
		logger.Error(err, "Controller returned an error while it stopped")
	case o == disabled:
		logger.Info("Controller is left out of this term", "reason", err.Error())
	case o == stuck:
		logger.Error(err, "Controller failed and does not stop", "stacks", goroutines([]string{c.Name})[c.Name])
	default:
		logger.Error(err, "Controller failed")
	}
}

func (c *child) nowReady() {
	c.become(stateRunning, stateStarting, stateStalled)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// watch sets the instance that the health watcher watches. Nil: none.
func (c *child) watch(i *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = i
}

func (c *child) current() *instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched
}

// working returns the state of a controller that is not stalled.
func (c *child) working() state {
	select {
	case <-c.ready:
		return stateRunning
	default:
		return stateStarting
	}
}

func (c *child) isTolerated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tolerated
}

// become changes the state to next if it is one of from, or any if from is empty. A Late controller stays Late until it
// is Stopped.
func (c *child) become(next state, from ...state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(from) > 0 && !slices.Contains(from, c.state), c.state == next,
		c.state == stateLate && next != stateStopped, c.state == stateStopped && next == stateLate:
		return false
	case next == stateLate:
		lateGauge.Add(1)
	case c.state == stateLate:
		lateGauge.Add(-1)
	}
	showState(c.Name, c.state, next)
	c.state = next
	c.record.became(next)
	return true
}

// sleep waits for d. It returns false if the child must stop.
func (c *child) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
