package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
)

func TestMain(m *testing.M) {
	workqueue.SetProvider(told)
	goleak.VerifyTestMain(m)
}

// record is a reconcile function's memory.
type record[K comparable] struct {
	mu   sync.Mutex
	keys []K
}

func (r *record[K]) reconcile(_ context.Context, k K) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k)
	return nil
}

func (r *record[K]) take() []K {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.keys
	r.keys = nil
	return taken
}

// start runs the loop. stop cancels it and returns what Run did.
func start[K comparable](ctx context.Context, l *loop.Loop[K]) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestAChangeQueuesTheKeysOfBothStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(configMap("a", "x"), configMap("b", "x"))
		inf := running(t, src)
		var done record[string]
		l := loop.New("test", 1, done.reconcile)
		loop.Watch(l, inf, func(c *corev1.ConfigMap) []string {
			return []string{cache.MetaObjectToName(c).Namespace + c.Labels["group"]}
		})
		stop := start(t.Context(), l)
		got := done.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("began with %v, want all there is", got)
		}
		moved := configMap("a", "x")
		moved.Labels = map[string]string{"group": "2"}
		src.Modify(moved)
		if got := done.take(); !slices.Equal(got, []string{"a", "a2"}) {
			t.Errorf("a change queued %v", got)
		}
		src.Delete(moved)
		if got := done.take(); !slices.Equal(got, []string{"a2"}) {
			t.Errorf("a deletion queued %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

func TestNothingIsReconciledBeforeTheCachesAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(configMap("a", "x"))
		inf := newInformer(src)
		var done record[cache.ObjectName]
		l := loop.New("test", 1, done.reconcile)
		loop.Watch(l, inf, keys)
		early := cache.ObjectName{Namespace: "c", Name: "early"}
		l.Add(early)
		stop := start(t.Context(), l)
		if got := done.take(); got != nil {
			t.Errorf("reconciled %v on an empty cache", got)
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers before the caches are synced", n)
		}
		end := run(t, src, inf)
		time.Sleep(time.Second)
		if got := done.take(); len(got) != 2 || !slices.Contains(got, early) {
			t.Errorf("reconciled %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		end()
	})
}

func TestALoopThatNeverSawItsCachesStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("test", 1, func(context.Context, int) error { return nil })
		l.On(loop.Source[int]{Synced: make(chan struct{}), Register: func() func() { t.Error("registered"); return func() {} }})
		stop := start(t.Context(), l)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		l.Add(1) // after the end: dropped
	})
}

func TestAFailedKeyComesBackLaterAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		began := time.Now()
		var tries []time.Duration
		var done record[int]
		l := loop.New("test", 1, func(ctx context.Context, k int) error {
			if k == 13 {
				tries = append(tries, time.Since(began))
				return errors.New("unlucky")
			}
			return done.reconcile(ctx, k)
		})
		stop := start(klog.NewContext(t.Context(), logger), l)
		l.Add(13)
		l.Add(1)
		if got := done.take(); !slices.Equal(got, []int{1}) {
			t.Errorf("reconciled %v", got)
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if first := tries[1] - tries[0]; first != 5*time.Millisecond {
			t.Errorf("first retry after %v", first)
		}
		if last := tries[len(tries)-1] - tries[len(tries)-2]; last != 30*time.Second {
			t.Errorf("after many failures, retried after %v", last)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
		if len(tries) != 32 || len(log) != 6 { // the 1st, 2nd, 4th, 8th, 16th and 32nd
			t.Fatalf("%d tries, %d log lines", len(tries), len(log))
		}
		if got := fmt.Sprint(log[0].Err, log[0].ParameterKVList); got != "unlucky [key 13 failures 1]" {
			t.Errorf("logged %s", got)
		}
	})
}

func TestAnErrorAfterTheEndIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		l := loop.New("test", 1, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		stop := start(klog.NewContext(t.Context(), logger), l)
		l.Add(1)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); log != "" {
			t.Errorf("logged %s", log)
		}
	})
}

func TestRunReturnsAfterItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(configMap("a", "x"))
		inf := running(t, src)
		release := make(chan struct{})
		l := loop.New("test", 3, func(context.Context, cache.ObjectName) error {
			<-release // does not look at its context
			return nil
		})
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Run returned while a worker worked")
		default:
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left while draining", n)
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestAKeyIsReconciledByOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, most, overlaps := map[int]bool{}, 0, 0
		l := loop.New("test", 4, func(_ context.Context, k int) error {
			mu.Lock()
			if busy[k] {
				overlaps++
			}
			busy[k] = true
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			delete(busy, k)
			mu.Unlock()
			return nil
		})
		stop := start(t.Context(), l)
		for n := range 100 {
			l.Add(n % 8)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if overlaps > 0 || most != 4 {
			t.Errorf("%d overlaps, at most %d keys at once", overlaps, most)
		}
	})
}

func TestAddAfterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done record[string]
		l := loop.New("test", 1, done.reconcile)
		l.AddAfter("before Run", time.Hour)
		stop := start(t.Context(), l)
		synctest.Wait()
		l.AddAfter("while it runs", time.Hour)
		time.Sleep(time.Hour - time.Second)
		if got := done.take(); got != nil {
			t.Errorf("too early: %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := done.take(); len(got) != 2 {
			t.Errorf("reconciled %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAPanicEndsTheLoopAndNotTheProcess(t *testing.T) {
	bad := configMap("a", "x")
	bad.Labels = map[string]string{"bad": ""}
	panics := func(c *corev1.ConfigMap) []cache.ObjectName {
		if _, ok := c.Labels["bad"]; ok {
			panic("boom")
		}
		return keys(c)
	}
	for name, c := range map[string]struct {
		object    *corev1.ConfigMap // there is at the beginning
		reconcile func(context.Context, cache.ObjectName) error
		keys      func(*corev1.ConfigMap) []cache.ObjectName
		where     string
	}{
		"in reconcile": {
			configMap("a", "x"), func(context.Context, cache.ObjectName) error { panic("boom") }, keys, "reconcile of a/x"},
		"in a handler": {
			configMap("a", "x"), func(context.Context, cache.ObjectName) error { return nil }, panics, "event handler"},
		"in the sweep": {
			bad, func(context.Context, cache.ObjectName) error { return nil }, panics, "sweep"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(c.object)
				inf := running(t, src)
				l := loop.New("test", 2, c.reconcile)
				loop.Watch(l, inf, c.keys)
				ended := make(chan error, 1)
				go func() { ended <- l.Run(t.Context()) }()
				synctest.Wait()
				src.Modify(bad)
				err := <-ended
				p, ok := errors.AsType[*control.Panic](err)
				if !ok || p.Where != c.where || p.Value != "boom" || len(p.Stack) == 0 {
					t.Errorf("Run returned %v", err)
				}
				if n := inf.Handlers(); n != 0 {
					t.Errorf("%d handlers left", n)
				}
			})
		})
	}
}

func TestARegistrationThatPanicsUndoesTheOnesBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := running(t, newSource(configMap("a", "x")))
		l := loop.New("test", 1, func(context.Context, cache.ObjectName) error { return nil })
		loop.Watch(l, inf, keys)
		l.On(loop.Source[cache.ObjectName]{Register: func() func() { panic("boom") }})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = l.Run(t.Context())
		}()
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

func TestALoopRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("test", 1, func(context.Context, int) error { return nil })
		if err := start(t.Context(), l)(); err != nil {
			t.Error(err)
		}
		if err := l.Run(t.Context()); err == nil {
			t.Error("a second Run returned nil")
		}
	})
}

func TestTermsOfOneNameShareTheirMetrics(t *testing.T) {
	for range 3 {
		hold := make(chan struct{})
		working := make(chan struct{})
		var once sync.Once
		l := loop.New("shared", 1, func(ctx context.Context, _ int) error {
			once.Do(func() { close(working) })
			<-hold
			return nil
		})
		stop := start(t.Context(), l)
		for k := range 10 {
			l.Add(k)
		}
		<-working
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		time.Sleep(10 * time.Millisecond)
		close(hold)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
	if adds := told.of("shared adds"); adds != 30 {
		t.Errorf("%v keys were added over three terms, want 30", adds)
	}
	if depth := told.of("shared depth"); depth != 0 {
		t.Errorf("the depth is %v between terms", depth)
	}
}

// queues counts what client-go tells of queues. It is the process's provider of such metrics, so that all terms' queues
// of a name count together.
type queues struct {
	mu     sync.Mutex
	values map[string]float64
}

var told = &queues{values: map[string]float64{}}

func (q *queues) of(name string) float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.values[name]
}

// tally is one metric of queues.
type tally string

func (c tally) Inc() { c.add(1) }
func (c tally) Dec() { c.add(-1) }
func (c tally) add(n float64) {
	told.mu.Lock()
	defer told.mu.Unlock()
	told.values[string(c)] += n
}
func (tally) Set(float64)     {}
func (tally) Observe(float64) {}

func (*queues) NewDepthMetric(name string) workqueue.GaugeMetric       { return tally(name + " depth") }
func (*queues) NewAddsMetric(name string) workqueue.CounterMetric      { return tally(name + " adds") }
func (*queues) NewLatencyMetric(string) workqueue.HistogramMetric      { return tally("latency") }
func (*queues) NewWorkDurationMetric(string) workqueue.HistogramMetric { return tally("duration") }
func (*queues) NewRetriesMetric(string) workqueue.CounterMetric        { return tally("retries") }
func (*queues) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return tally("unfinished")
}
func (*queues) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return tally("longest")
}

func TestTheEndOfATermByAnothersPanicIsNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("test", 1, func(context.Context, int) error { return nil })
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		cancel(fmt.Errorf("controller another: %w", control.Recovered("its reconcile", "boom")))
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}
