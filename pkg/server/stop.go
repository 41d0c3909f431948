package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// LateError says that a server did not stop in time. Late names the goroutines and controllers that still run: the
// process should exit.
type LateError struct {
	Timeout time.Duration
	Late    []string
}

func (e *LateError) Error() string {
	return fmt.Sprintf("not stopped after %v: still waiting for %s", e.Timeout.Round(time.Millisecond), strings.Join(e.Late, ", "))
}

// fail makes the replica stop with an error. The first error counts, even if the replica had been asked to stop before.
func (r *run) fail(err error) {
	if r.failure.CompareAndSwap(nil, &err) {
		r.stop(err)
		return
	}
	klog.FromContext(r.ctx).V(2).Info("Failed, while the replica stops for another failure", "err", err)
}

// fault returns the error that made the replica stop, nil if there is none.
func (r *run) fault() error {
	if err := r.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// running returns the names of what has not ended.
func (r *run) running() []string {
	late := slices.Concat(r.election.Running(), r.process.Running())
	if len(late) == 0 {
		late = []string{"requests in flight"}
	}
	return late
}

// watchHistory ends the election, and with it the term, if etcd goes back. The process goes on serving, but is not
// ready. It does not exit, because all replicas would exit at the same time.
func (r *run) watchHistory(ctx context.Context, s *store) {
	select {
	case <-ctx.Done():
	case <-s.WentBack():
		klog.FromContext(ctx).Error(s.Fault(), "This replica is not ready any more and stands for no election: restart it")
		r.election.end(s.Fault())
	}
}

// processAllowance is how long the pre-shutdown hook waits for the goroutines of the process lifetime.
const processAllowance = 3 * time.Second

// end asks everything to end, the election first, and waits for a bounded time.
func (r *run) end(electionTime time.Duration) {
	log, began := klog.FromContext(r.ctx), time.Now()
	r.election.end(context.Cause(r.ctx))
	joined := r.election.JoinFor(electionTime)
	after := time.Since(began)
	delay := max(0, r.server.cfg.ShutdownDelay-after)
	if joined {
		log.Info("The term and the election have ended, closing the listener", "after", after.Round(time.Millisecond), "in", delay.Round(time.Millisecond))
	} else {
		log.Error(nil, "The term has not ended in time, closing the listener without it", "timeout", electionTime)
	}
	// The informers run on until the listener closes, because requests are answered from them.
	r.server.farewell.Wait(delay)
	r.process.end(nil)
	if !r.process.JoinFor(processAllowance) {
		log.Error(nil, "Closing the listener although goroutines are still running", "parts", r.process.Running())
	}
}

// join ends everything and waits for it, the election last.
func (r *run) join() {
	r.election.end(context.Cause(r.ctx))
	r.process.end(nil)
	r.process.Join()
	r.election.Join()
}

// signal is a channel of capacity 1. A message in it says that something has changed.
type signal chan struct{}

func (s signal) tell() {
	select {
	case s <- struct{}{}:
	default:
	}
}
