package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
)

const (
	// defaultStallDeadline stands for a descriptor that says none.
	defaultStallDeadline = time.Minute
	// healthPeriod is how often controllers are asked how their work goes.
	healthPeriod = time.Second
)

// stallError is why the supervisor cancels a controller.
type stallError struct {
	idle    time.Duration
	pending int
}

func (e *stallError) Error() string {
	return fmt.Sprintf("stalled: it holds %d items and has returned none for %v", e.pending, e.idle.Round(time.Second))
}

// stallClock measures for how long a controller has held work and got none of it done.
type stallClock struct {
	returned uint64
	idle     time.Duration
}

// observe takes in a report, elapsed after the last one. The clock stands while the store is unreachable: nothing that
// a controller does could be done then.
func (c *stallClock) observe(h controllers.Health, elapsed time.Duration, reachable bool) (idle time.Duration) {
	switch {
	case h.Pending == 0, h.Returned != c.returned:
		c.returned, c.idle = h.Returned, 0
	case reachable:
		c.idle += elapsed
	}
	return c.idle
}

// watchHealth asks all controllers again and again until joined is closed. It is also who answers Ping.
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
			// A process that was paused has not stalled: what passed meanwhile does not count.
			elapsed := min(now.Sub(last), 2*healthPeriod)
			last = now
			reachable := s.cfg.StoreReachable == nil || s.cfg.StoreReachable()
			for _, c := range s.children {
				c.examine(elapsed, reachable)
			}
		}
	}
}

// instance is a controller that runs, for the health watcher, which owns its clock.
type instance struct {
	reporter controllers.Reporter // nil if it is none
	cancel   context.CancelCauseFunc
	since    time.Time
	clock    stallClock
}

// examine asks a controller how its work goes, and cancels it if it has stalled for too long.
func (c *child) examine(elapsed time.Duration, reachable bool) {
	c.mu.Lock()
	i := c.watched
	c.mu.Unlock()
	if i == nil {
		return
	}
	if time.Since(i.since) >= c.failures.window {
		c.recovered()
	}
	deadline := c.StallDeadline
	if deadline == 0 {
		deadline = defaultStallDeadline
	}
	if i.reporter == nil || deadline < 0 {
		return
	}
	logger := klog.FromContext(c.ctx)
	health, err := report(i.reporter)
	if err != nil {
		i.cancel(err)
		return
	}
	switch idle := i.clock.observe(health, elapsed, reachable); {
	case idle >= 2*deadline:
		i.cancel(&stallError{idle: idle, pending: health.Pending})
	case idle >= deadline:
		if c.become(Stalled, Running) {
			stalls.WithLabelValues(c.Name).Inc()
			logger.Error(&stallError{idle: idle, pending: health.Pending}, "Controller is stalled: it will be cancelled if this goes on", "stacks", goroutines([]string{c.Name})[c.Name])
		}
	case idle == 0:
		if c.become(Running, Stalled) {
			logger.Info("Controller is no longer stalled")
		}
	}
}

// recovered ends the toleration of a controller that has worked for long enough.
func (c *child) recovered() {
	c.mu.Lock()
	was := c.tolerated
	c.tolerated = false
	c.mu.Unlock()
	if !was {
		return
	}
	klog.FromContext(c.ctx).Info("Controller has recovered: if it fails again, that can end the term", "ran", c.failures.window)
	if c.s.cfg.OnRecovered != nil {
		c.s.cfg.OnRecovered(c.Name)
	}
}

// report calls the controller's code on the supervisor's goroutine.
func report(r controllers.Reporter) (h controllers.Health, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = controllers.Recovered("Report", value)
		}
	}()
	return r.Report(), nil
}

// errWedged says that the supervisor itself does not work.
var errWedged = errors.New("the supervisor of the controllers does not answer: restart the process, and report its goroutines (/debug/pprof/goroutine?debug=2)")

// Probe is how a health check reaches the Run that has it in its Config. One Probe serves one Run at a time.
type Probe struct {
	active chan *supervision
}

// NewProbe returns a Probe of a supervisor that does not run.
func NewProbe() *Probe {
	p := &Probe{active: make(chan *supervision, 1)}
	p.active <- nil
	return p
}

func (p *Probe) set(s *supervision) {
	if p != nil {
		<-p.active
		p.active <- s
	}
}

// Ping returns nil if the supervisor answers, or does not run; an error if ctx ends before. Late, hanging or failed
// controllers do not make it fail.
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
