package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
)

const (
	// defaultStallDeadline is the deadline of a descriptor that has none.
	defaultStallDeadline = time.Minute
	// healthPeriod is how often controllers are asked for a report.
	healthPeriod = time.Second
)

// stallError is the cause with which the supervisor cancels a stalled controller.
type stallError struct {
	idle    time.Duration
	pending int
}

func (e *stallError) Error() string {
	return fmt.Sprintf("stalled: it holds %d items and has returned none for %v", e.pending, e.idle.Round(time.Second))
}

// instance is one call of a controller's constructor or Run, as the health watcher sees it.
type instance struct {
	cancel context.CancelCauseFunc
	// reporter is nil for a controller that does not report.
	reporter control.Reporter

	// Owned by the health watcher.
	stands standstill
	worked time.Duration // time without a stall and with a reachable store
	answer chan reported // gets the report that was asked for; nil if none was
	last   control.Health

	// reports joins the goroutines that call Report. None is started once over is set. Guarded by the child's mu.
	reports sync.WaitGroup
	over    bool
}

type reported struct {
	control.Health
	err error
}

// constructor reports for a constructor: one item, which is pending until it returns.
type constructor struct{}

func (constructor) Report() control.Health { return control.Health{Pending: 1} }

// watchHealth asks all controllers for reports until joined is closed. It also answers Ping.
func (s *supervision) watchHealth(joined <-chan struct{}) {
	ticker := time.NewTicker(healthPeriod)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-joined:
			return
		case <-s.pings:
		case now := <-ticker.C:
			// The time during which the process was paused does not count.
			elapsed := min(now.Sub(last), 2*healthPeriod)
			last = now
			reachable := s.reachable()
			for _, c := range s.children {
				c.examine(elapsed, reachable)
			}
		}
	}
}

func (s *supervision) reachable() bool { return s.cfg.StoreReachable == nil || s.cfg.StoreReachable() }

// examine judges a controller's progress, and cancels the controller if it has stalled for too long.
func (c *child) examine(elapsed time.Duration, reachable bool) {
	i := c.current()
	if i == nil {
		return
	}
	health, err := c.ask(i)
	if err != nil {
		i.cancel(err)
		return
	}
	idle, held, by := i.stands.observe(health, elapsed, reachable)
	c.sweeps(i, health.Sweep)
	c.record.reports(health)
	if idle == 0 && reachable {
		if i.worked += elapsed; i.worked >= c.failures.window {
			c.recovered()
		}
	}
	deadline := c.StallDeadline
	if deadline == 0 {
		deadline = defaultStallDeadline
	}
	c.holds(i, by, held, deadline)
	stall := &stallError{idle: idle, pending: health.Pending}
	switch {
	case deadline < 0:
	case idle >= 2*deadline:
		i.cancel(stall)
	case idle >= deadline:
		if c.become(stateStalled, stateRunning, stateStarting) {
			stalls.Inc(c.Name)
			c.record.stalled(stall)
			klog.FromContext(c.ctx).Error(stall, "Controller is stalled: it will be cancelled if this goes on", "stacks", goroutines([]string{c.Name})[c.Name])
		}
	case idle == 0:
		if c.become(c.working(), stateStalled) {
			klog.FromContext(c.ctx).Info("Controller is no longer stalled")
		}
	}
}

// ask returns the instance's latest report. Report is the controller's code and may hang: it is called on a goroutine,
// one call at a time. A controller whose Report hangs counts as one that finishes nothing.
func (c *child) ask(i *instance) (control.Health, error) {
	if i.reporter == nil {
		return control.Health{}, nil
	}
	patience := time.Duration(0)
	if i.answer == nil {
		i.answer, patience = c.report(i), healthPeriod/100
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-i.answer:
		i.last, i.answer = r.Health, nil
		return r.Health, r.err
	case <-timer.C: // the answer may be there at the next tick
		h := i.last
		h.Pending, h.Only = max(h.Pending, h.Sweep.Pending+1), ""
		return h, nil
	}
}

// report calls Report on a goroutine, unless the instance is over.
func (c *child) report(i *instance) chan reported {
	answer := make(chan reported, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.over {
		answer <- reported{}
		return answer
	}
	i.reports.Go(func() {
		var r reported
		defer func() {
			if value := recover(); value != nil {
				r.err = control.Recovered("Report", value)
			}
			answer <- r
		}()
		pprof.Do(c.ctx, pprof.Labels(label, c.Name), func(context.Context) { r.Health = i.reporter.Report() })
	})
	return answer
}

// end waits for running reports and prevents further ones.
func (c *child) end(i *instance) {
	c.mu.Lock()
	i.over = true
	c.mu.Unlock()
	i.reports.Wait()
	c.sweeps(i, control.Sweep{})
	c.holds(i, "", 0, 0)
}

// sweeps shows the latest report of an instance's sweep. When the instance is over, there is none.
func (c *child) sweeps(i *instance, s control.Sweep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.over {
		s = control.Sweep{}
	}
	showSweep(c.Name, c.swept, s)
	c.swept = s
}

// recovered ends the toleration of a controller that has worked for the restart window.
func (c *child) recovered() {
	c.mu.Lock()
	was := c.tolerated
	c.tolerated = false
	c.mu.Unlock()
	if !was {
		return
	}
	c.record.tolerates(false)
	klog.FromContext(c.ctx).Info("Controller has recovered: if it fails again, the term can end", "worked", c.failures.window)
	c.s.tell(Event{Type: ControllerRecovered, Controller: c.Name})
}

// errWedged says that the supervisor itself hangs.
var errWedged = errors.New("the supervisor of the controllers does not answer: restart the process, and report its goroutines (/debug/pprof/goroutine?debug=2)")

// Probe lets a health check reach the Run whose Config has it, and remembers how the controllers are doing. One Probe
// serves one Run at a time.
type Probe struct {
	active chan *supervision

	mu      sync.Mutex
	records map[string]*record // by the name of the controller
}

// NewProbe returns a Probe.
func NewProbe() *Probe {
	p := &Probe{active: make(chan *supervision, 1), records: map[string]*record{}}
	p.active <- nil
	return p
}

func (p *Probe) set(s *supervision) {
	if p != nil {
		<-p.active
		p.active <- s
	}
}

// Ping returns nil if the supervisor answers or does not run, and an error if ctx ends first. It does not depend on
// whether controllers are late, hang or have failed.
func (p *Probe) Ping(ctx context.Context) error {
	s := <-p.active
	p.active <- s
	if s == nil {
		return nil
	}
	select {
	case s.pings <- struct{}{}:
		return nil
	case <-s.over:
		return nil
	case <-ctx.Done():
		return errWedged
	}
}
