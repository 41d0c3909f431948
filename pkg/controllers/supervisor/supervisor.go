// Package supervisor runs one term's controllers: all of them or none, joined before it returns.
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

// Config is how Run drains.
type Config struct {
	// DrainTimeout is how long after the end of its context a controller may still run before it is late. Zero: no
	// controller is ever late.
	DrainTimeout time.Duration
	// OnFailure, if set, is called at the first failure, before anything is joined: a controller that does not stop
	// may keep Run from returning it. It gets the *ControllerError.
	OnFailure func(err error)
	// OnLate, if set, is called once, at the drain timeout, with the names of the late controllers.
	OnLate func(names []string)
}

// ControllerError says which controller ended the term, and why.
type ControllerError struct {
	Controller string
	Err        error
}

func (e *ControllerError) Error() string {
	return fmt.Sprintf("controller %q: %v", e.Controller, e.Err)
}

// Unwrap returns what the controller returned, or a *controllers.Panic.
func (e *ControllerError) Unwrap() error { return e.Err }

var (
	errEarly  = errors.New("returned nil before its context ended: Run must last until then")
	errGoexit = errors.New("ended its goroutine with runtime.Goexit")
)

// Run runs a set of controllers until ctx ends or one of them fails, and returns only after every one of them has
// returned, however long that takes: the caller may start another term at once.
//
//	constructing --all constructed--> starting --Needs ready--> running --ctx ends, or a failure--> draining --> joined
//	     |                               |                                                             ^
//	     +---------- failure, ctx ends --+-------------------------------------------------------------+
//
// All are constructed, in the set's order, before any is started, so that a constructor's failure leaves nothing to
// undo. Each then runs on its own goroutine as soon as those it Needs are ready (see controllers.Readier; one that is no
// Readier is ready from the start). The first error, panic, or return before ctx ended is a failure: it cancels all
// others and is returned as a *ControllerError. Without a failure Run returns nil.
//
// Controllers that have not returned at the drain timeout are logged with the stacks of their goroutines, again from
// time to time, and once more when they have returned. Run cannot end them, and does not abandon them.
//
// Panics are contained on the goroutines of constructors and of Run only. A goroutine that a controller starts by itself
// has to contain its own; package loop does.
func Run(ctx context.Context, set []controllers.Descriptor, deps controllers.Deps, cfg Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &supervision{cancel: cancel, onFailure: cfg.OnFailure}
	joined := make(chan struct{})
	var drain sync.WaitGroup
	drain.Go(func() { s.watchDrain(ctx, cfg, joined) })
	s.run(ctx, set, deps)
	close(joined)
	drain.Wait()
	cancel(nil)

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// supervision is the state of one Run.
type supervision struct {
	cancel    context.CancelCauseFunc
	onFailure func(error)

	mu sync.Mutex
	// active are the controllers whose code is running, in the order in which they began.
	active []string
	// failure is the first one, a *ControllerError.
	failure error
}

func (s *supervision) run(ctx context.Context, set []controllers.Descriptor, deps controllers.Deps) {
	built, ok := s.construct(ctx, set, deps)
	if !ok {
		return
	}
	var all sync.WaitGroup
	for _, d := range set {
		all.Go(func() {
			ctx := withController(ctx, d.Name)
			if !awaitNeeds(ctx, d, built) {
				return
			}
			klog.FromContext(ctx).V(2).Info("Controller starts")
			s.ended(ctx, d.Name, s.call(ctx, d.Name, "Run", built[d.Name].Run))
		})
	}
	<-ctx.Done() // also of a failure, and with an empty set
	all.Wait()
}

// construct returns the controllers by name, and false if not all could be constructed.
func (s *supervision) construct(ctx context.Context, set []controllers.Descriptor, deps controllers.Deps) (map[string]controllers.Controller, bool) {
	built := make(map[string]controllers.Controller, len(set))
	for _, d := range set {
		if ctx.Err() != nil {
			return nil, false
		}
		ctx := withController(ctx, d.Name)
		err := s.call(ctx, d.Name, "its constructor", func(ctx context.Context) error {
			c, err := d.New(ctx, deps)
			built[d.Name] = c
			if err == nil && c == nil {
				err = errors.New("its constructor returned neither a controller nor an error")
			}
			return err
		})
		if err != nil {
			s.ended(ctx, d.Name, err)
			return nil, false
		}
	}
	for _, d := range set {
		for _, need := range d.Needs {
			if built[need] == nil {
				s.ended(withController(ctx, d.Name), d.Name, fmt.Errorf("needs %q, which is not in the set: run a set of a validated registry", need))
				return nil, false
			}
		}
	}
	return built, true
}

// awaitNeeds returns false if ctx ended before all that d needs was ready.
func awaitNeeds(ctx context.Context, d controllers.Descriptor, built map[string]controllers.Controller) bool {
	for _, need := range d.Needs {
		readier, ok := built[need].(controllers.Readier)
		if !ok {
			continue
		}
		select {
		case <-readier.Ready():
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// ended takes note of what a controller returned. An error is a failure while ctx lives, a panic is one always; the
// first of them ends the term.
func (s *supervision) ended(ctx context.Context, name string, err error) {
	logger, early := klog.FromContext(ctx), ctx.Err() == nil
	if err == nil && early {
		err = errEarly
	}
	panicked, isPanic := errors.AsType[*controllers.Panic](err)
	switch {
	case isPanic:
		logger.Error(err, "Controller panicked", "stack", string(panicked.Stack))
	case early:
		logger.Error(err, "Controller failed")
	case err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)):
		logger.Error(err, "Controller returned an error while it stopped")
		return
	default:
		logger.V(2).Info("Controller has stopped")
		return
	}
	failure := &ControllerError{Controller: name, Err: err}
	s.mu.Lock()
	first := s.failure == nil
	if first {
		s.failure = failure
	}
	s.mu.Unlock()
	s.cancel(failure)
	if first && s.onFailure != nil {
		s.onFailure(failure)
	}
}

func (s *supervision) enter(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = append(s.active, name)
}

func (s *supervision) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.active, name)
	s.active = slices.Delete(s.active, i, i+1)
}

func (s *supervision) late() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}

func withController(ctx context.Context, name string) context.Context {
	return klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", name))
}
