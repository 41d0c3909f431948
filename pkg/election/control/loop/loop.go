// Package loop is the one work-queue loop of all controllers: events queue keys, workers reconcile keys, and a key
// whose reconcile fails is tried again later.
package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
)

// A key whose reconcile fails is tried again after retryBase, then after twice that, and so on up to retryMax. A
// failing key delays only itself: there is no limit over all keys.
const (
	retryBase = 5 * time.Millisecond
	retryMax  = 30 * time.Second
)

// sweepWorkers: one of so many workers may work for the sweep. The others are there for what has just happened.
const sweepWorkers = 4

// Loop reconciles keys of type K. Each value is run once. Its states:
//
//	New --Watch, On, Needs, By, Within--> wired --Run--> waiting for caches --> working --ctx ends, a panic--> ended
//
// Watch, On, Needs, By and Within must be called before Run, and by one goroutine. Add and AddAfter may be called at
// any time. Keys that are added before Run works are kept, keys that are added after it has ended are dropped.
//
// Run begins with a sweep: a pass over all objects. The keys that it finds wait in a lane of their own, behind what
// has just happened: a change that comes while the sweep goes on is reconciled at once, however many objects there
// are.
type Loop[K comparable] struct {
	name      string
	workers   int
	reconcile func(context.Context, K) error
	needs     func(K) bool  // nil: the sweep queues all keys
	within    time.Duration // 0: a reconcile may take any time
	wirings   []wiring[K]
	lanes     *lanes[K]
	sweep     sweep

	first sync.Once // the first return of reconcile

	mu sync.Mutex
	// queue exists only while Run works: it has goroutines, and a Loop that is constructed may never run.
	queue workqueue.TypedRateLimitingInterface[K]
	// pauses are those of the queue, for keys that have failed.
	pauses workqueue.TypedRateLimiter[K]
	// early holds keys that are added before there is a queue. It is nil from then on.
	early map[K]time.Duration
	// fail ends Run with a cause.
	fail context.CancelCauseFunc
}

// New returns a loop that calls reconcile from a number of workers, for each key from one at a time. name is the
// controller's name. It labels the queue's metrics; a loop of the same name in a later term continues the same series.
//
// reconcile's context ends with Run's. If reconcile returns an error, it is logged and the key is tried again later. A
// panic ends the loop.
func New[K comparable](name string, workers int, reconcile func(context.Context, K) error) *Loop[K] {
	return &Loop[K]{
		name: name, workers: workers, reconcile: reconcile, early: map[K]time.Duration{},
		lanes: newLanes[K](workers, max(1, workers/sweepWorkers)),
	}
}

// Needs makes the sweep queue only the keys for which needs returns true. needs must be pure, and read caches only. It
// may return false if reconcile would write nothing by what the caches show now, whatever it reads from the server. A
// cache that is late is no danger: when it has caught up, the change queues the key. needs is called for every key of
// every object there is.
func (l *Loop[K]) Needs(needs func(K) bool) { l.needs = needs }

// By makes the keys of each group take turns with those of others, by the time that they take, and gives no group more
// than half of the workers that the others leave. A group is a tenant, for whom keys may be many, or slow, or hang. By
// must be called before Run; group must be pure and quick.
func (l *Loop[K]) By(group func(K) string) { l.lanes.group = group }

// Within gives each reconcile a deadline, after which its context ends. An error that it returns then is a failure as
// any other: the key waits for its next turn. What may wait for somebody else's machine needs a deadline, and so does
// what takes as long as a tenant has objects. It should be well below the stall deadline of the controller: what is cut
// short in time is no stall. Call it before Run.
func (l *Loop[K]) Within(deadline time.Duration) { l.within = deadline }

// Add queues a key now. A key that is already queued is queued once. A key that is being reconciled is reconciled
// again.
func (l *Loop[K]) Add(k K) { l.AddAfter(k, 0) }

// AddAfter queues a key after a delay.
func (l *Loop[K]) AddAfter(k K, delay time.Duration) {
	l.mu.Lock()
	queue := l.queue
	if queue == nil && l.early != nil {
		if earlier, ok := l.early[k]; !ok || delay < earlier {
			l.early[k] = delay
		}
	}
	l.mu.Unlock()
	if queue != nil {
		l.lanes.want(k, fresh)
		queue.AddAfter(k, delay)
	}
}

// Run waits for the caches, registers the event handlers, sweeps, and reconciles until ctx ends. Then it removes the
// handlers, shuts down the queue, joins the sweep and the workers, and returns nil. Keys that are left in the queue
// are dropped: the next term begins with all objects. A panic in reconcile or in a handler ends Run early with a
// *control.Panic, and a cache that does not sync within half a minute with an error that names it.
func (l *Loop[K]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, w := range l.wirings {
		if err := l.await(ctx, w); err != nil || ctx.Err() != nil {
			l.end()
			return err
		}
	}
	queue, err := l.begin(cancel)
	if err != nil {
		return err
	}
	defer l.end()
	remove, err := l.register()
	if err != nil {
		return err
	}
	reconcile := l.observed(ctx, queue.NumRequeues)
	control.Reached(ctx, control.Working)

	var all sync.WaitGroup
	all.Go(func() { l.sweepAll(ctx) })
	all.Go(func() { l.dispatch(ctx, queue, reconcile) })
	<-ctx.Done()
	remove()
	queue.ShutDown()
	all.Wait()
	// The loop's own panic is the cause itself. That of another controller, for which the term ends, comes wrapped.
	if p, ok := context.Cause(ctx).(*control.Panic); ok { //nolint:errorlint // see above
		return p
	}
	return nil
}

// Report implements control.Reporter: it counts the keys that are queued or being reconciled, and those that have been.
func (l *Loop[K]) Report() control.Health {
	walked := l.sweep.walked.Load() // first: what the sweep has queued until then is among what is pending
	pending, returned := l.lanes.progress()
	return control.Health{
		Pending: pending[fresh] + pending[swept], Returned: returned[fresh] + returned[swept], Only: l.lanes.only(fresh),
		Sweep: control.Sweep{Running: !walked || pending[swept] > 0, Pending: pending[swept], Returned: returned[swept], Only: l.lanes.only(swept)},
	}
}

func (l *Loop[K]) begin(fail context.CancelCauseFunc) (workqueue.TypedRateLimitingInterface[K], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.early == nil {
		return nil, fmt.Errorf("loop %s has run already: construct a new one", l.name)
	}
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Name: l.name, Queue: l.lanes})
	l.pauses = workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryBase, retryMax)
	l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(l.pauses,
		workqueue.TypedRateLimitingQueueConfig[K]{
			Name:          l.name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: l.name, Queue: ordered}),
		})
	for k, delay := range l.early {
		l.queue.AddAfter(k, delay)
	}
	l.early = nil
	l.fail = fail
	return l.queue, nil
}

// end shuts the queue down, if Run has made one. It also empties the queue, because the next term continues the gauge
// of its length.
func (l *Loop[K]) end() {
	l.mu.Lock()
	queue := l.queue
	l.queue, l.early = nil, nil
	l.mu.Unlock()
	if queue == nil {
		return
	}
	queue.ShutDown()
	l.lanes.unlimit()
	for {
		k, shutdown := queue.Get()
		if shutdown {
			return
		}
		l.lanes.finish(k)
		queue.Done(k)
	}
}

// register adds all event handlers and returns a function that removes them.
func (l *Loop[K]) register() (func(), error) {
	var removes []func()
	remove := func() {
		for i := len(removes) - 1; i >= 0; i-- {
			removes[i]()
		}
	}
	complete := false
	defer func() {
		if !complete { // register has failed or panicked
			remove()
		}
	}()
	for _, w := range l.wirings {
		undo, err := w.register()
		if err != nil {
			return nil, fmt.Errorf("loop %s: %w", l.name, err)
		}
		removes = append(removes, undo)
	}
	complete = true
	return remove, nil
}

// dispatch gives the keys to workers until the queue is shut down, and joins these. A worker is a goroutine only while
// there is work: a process may have many loops, of which most are idle. Whoever has done a key asks the queue itself,
// because nobody else learns that another key of its group may be taken now.
func (l *Loop[K]) dispatch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error) {
	var workers sync.WaitGroup
	defer workers.Wait()
	places := make(chan struct{}, l.workers)
	for {
		places <- struct{}{} // first: which key is next is decided when there is a worker for it
		k, shutdown := queue.Get()
		if shutdown {
			return
		}
		workers.Go(func() {
			defer func() { <-places }()
			for !shutdown {
				l.work(ctx, k, queue, reconcile)
				if l.lanes.Len() == 0 {
					return
				}
				k, shutdown = queue.Get()
			}
		})
	}
}

// work reconciles a key that was taken from the queue.
func (l *Loop[K]) work(ctx context.Context, k K, queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error) {
	defer queue.Done(k)
	defer l.finish(ctx, k)
	if ctx.Err() != nil {
		return
	}
	defer l.Contain(fmt.Sprintf("reconcile of %v", k))
	err := reconcile(ctx, k)
	l.first.Do(func() { control.Reached(ctx, control.Reconciled) })
	switch {
	case err == nil:
		queue.Forget(k)
	case ctx.Err() != nil: // not a failure: the end of the term has cut it short
	default:
		if failures := queue.NumRequeues(k) + 1; tells(failures) {
			klog.FromContext(ctx).Error(err, "Reconcile failed and will be tried again", "key", k, "failures", failures)
		}
		l.lanes.want(k, l.lanes.of(k))
		queue.AddAfter(k, l.rest(k, err))
	}
}

// errLong is the cause with which the context of a reconcile ends that takes too long.
var errLong = errors.New("the reconcile was cut short, and goes on in its next turn")

// rest returns how long a key waits that has failed. What was cut short may be nearly done, and has cost its group a
// turn already: it does not wait for longer than a twentieth of one.
func (l *Loop[K]) rest(k K, err error) time.Duration {
	pause := l.pauses.When(k)
	if errors.Is(err, errLong) {
		return min(pause, l.within/20)
	}
	return pause
}

// bounded calls reconcile with its deadline.
func (l *Loop[K]) bounded(ctx context.Context, k K) error {
	if l.within == 0 {
		return l.reconcile(ctx, k)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.within, errLong)
	defer cancel()
	err := l.reconcile(ctx, k)
	if err != nil && context.Cause(ctx) == errLong { //nolint:errorlint // the cause itself
		return fmt.Errorf("%w: after %v: %w", errLong, l.within, err)
	}
	return err
}

// tells reports whether the log has a failure, by how many there were in succession: the first ones, and then fewer
// and fewer. What fails for ever would fill it otherwise.
func tells(failures int) bool { return failures&(failures-1) == 0 }

// finish takes back a key that a worker has taken.
func (l *Loop[K]) finish(ctx context.Context, k K) {
	if l.lanes.finish(k) == swept && ctx.Err() == nil {
		l.tellSweep(ctx)
	}
}

// Contain is to be deferred where code of the controller runs on other goroutines than the workers', such as the event
// handlers of a Source. It recovers a panic, which would end the process there, and ends the loop with a
// *control.Panic. where says where that was.
func (l *Loop[K]) Contain(where string) {
	value := recover()
	if value == nil {
		return
	}
	l.mu.Lock()
	fail := l.fail
	l.mu.Unlock()
	if fail == nil { // Run has not registered anything yet: this is whoever has called it
		panic(value)
	}
	fail(control.Recovered(where, value))
}

var (
	_ control.Controller = (*Loop[int])(nil)
	_ control.Reporter   = (*Loop[int])(nil)
)
