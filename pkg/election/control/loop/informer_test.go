package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
)

// A handler that has been removed computes no key any more, whatever client-go still has for it.
func TestNoCodeOfAControllerRunsAfterItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource()
		inf := running(t, src)
		entered, release := make(chan struct{}), make(chan struct{})
		var ended atomic.Bool
		l := loop.New("test", 1, func(context.Context, cache.ObjectName) error { return nil })
		loop.Watch(l, inf, func(c *corev1.ConfigMap) []cache.ObjectName {
			if ended.Load() {
				t.Error("a key is computed after Run has returned")
				return nil
			}
			entered <- struct{}{} // changes pile up meanwhile
			<-release
			return keys(c)
		})
		stop := start(t.Context(), l)
		synctest.Wait()
		for n := range 100 {
			src.Add(configMap("a", fmt.Sprint(n)))
		}
		<-entered
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		// The handler ends its call. Whether it takes some more changes before it is removed is a matter of
		// chance.
		for done := false; !done; {
			select {
			case release <- struct{}{}:
			case <-entered:
			case err := <-stopped:
				if err != nil {
					t.Error(err)
				}
				done = true
			}
		}
		ended.Store(true)
		time.Sleep(time.Second)
	})
}

// What an informer repeats because of its resync period is no news: whoever has just changed something is ahead of it.
func TestAResyncIsInTheLaneOfTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 400
		src := newSource()
		for n := range objects {
			src.Add(configMap("a", fmt.Sprint(n)))
		}
		inf := &informer{SharedIndexInformer: cache.NewSharedIndexInformer(src, &corev1.ConfigMap{}, time.Hour, cache.Indexers{})}
		t.Cleanup(run(t, src, inf))
		until(t, inf.HasSynced)
		// or its handler would be due at client-go's first look, if both begin at the same moment
		time.Sleep(time.Minute)
		done := slow{takes: time.Second}
		l := loop.New("test", 8, done.reconcile)
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		time.Sleep(118 * time.Minute) // client-go asks once an hour which handlers are due
		if got := done.take(); len(got) != objects {
			t.Errorf("the sweep has reconciled %d keys", len(got))
		}
		time.Sleep(2*time.Minute + 10*time.Second)
		if got := done.take(); len(got) == 0 {
			t.Error("nothing was repeated")
		} else if h := l.Report(); h.Sweep.Pending == 0 || h.Pending != h.Sweep.Pending {
			t.Errorf("of %d pending keys %d are in the sweep's lane", h.Pending, h.Sweep.Pending)
		}
		src.Modify(configMap("new", "x"))
		time.Sleep(1500 * time.Millisecond)
		if h := l.Report(); h.Pending != h.Sweep.Pending {
			t.Errorf("what is new waits behind what is repeated: %+v", h)
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestObjectsOfAnotherTypeEndTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := running(t, newSource(configMap("a", "x")))
		l := loop.New("test", 1, func(context.Context, string) error { return nil })
		loop.Watch(l, inf, func(*corev1.Secret) []string { return nil })
		p, ok := errors.AsType[*control.Panic](l.Run(t.Context()))
		if !ok || !strings.Contains(p.Error(), "*v1.ConfigMap where the loop expects a *v1.Secret") {
			t.Errorf("Run returned %v", p)
		}
		if n := inf.Handlers(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

// The informers live as long as the process. One that has ended before cannot be followed, and the loop must not work
// blindly.
func TestAnInformerThatHasEndedIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, other := newSource(configMap("a", "x")), running(t, newSource())
		inf := newInformer(src)
		end := run(t, src, inf)
		until(t, inf.HasSynced)
		end()
		l := loop.New("test", 1, func(context.Context, cache.ObjectName) error { t.Error("reconciled"); return nil })
		loop.Watch(l, other, keys)
		loop.Watch(l, inf, keys)
		err := l.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap, which must run longer than the election") {
			t.Errorf("Run returned %v", err)
		}
		if n := other.Handlers(); n != 0 {
			t.Errorf("%d handlers left on the informer before it", n)
		}
	})
}

// A program that forgets to start an informer, or asks a factory for it after its start, is told.
// A term with such a controller would go on without its work.
func TestAnInformerThatDoesNotRunIsToldAndEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		l := loop.New("test", 1, func(context.Context, cache.ObjectName) error { return nil })
		src := newSource()
		defer src.Shutdown()
		loop.Watch(l, newInformer(src), keys)
		stop := start(klog.NewContext(t.Context(), logger), l)
		time.Sleep(9 * time.Second)
		log := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
		if got := log(); got != "" {
			t.Errorf("told at once: %s", got)
		}
		time.Sleep(time.Minute)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "informer of *v1.ConfigMap has not synced within 30s") {
			t.Errorf("the loop has ended with %v", err)
		}
		got := log()
		if strings.Count(got, "Still waiting") != 1 || !strings.Contains(got, `cache="informer of *v1.ConfigMap"`) || !strings.Contains(got, `for="10s"`) {
			t.Errorf("told %s", got)
		}
	})
}

func TestAnObjectWhoseDeletionWasMissedIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(configMap("a", "x"))
		inf := running(t, src)
		var done record[cache.ObjectName]
		l := loop.New("test", 1, done.reconcile)
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		done.take()
		src.DeleteDropWatch(configMap("a", "x"))
		src.ResetWatch() // the informer lists again
		time.Sleep(time.Minute)
		if got := done.take(); len(got) != 1 || got[0].Name != "x" {
			t.Errorf("queued %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Code that the loop has not begun to contain is the caller's: its panic is not swallowed.
func TestContainLeavesAPanicBeforeRunAlone(t *testing.T) {
	l := loop.New("test", 1, func(context.Context, int) error { return nil })
	defer func() {
		if value := recover(); value != "boom" {
			t.Errorf("recovered %v", value)
		}
	}()
	defer l.Contain("nowhere")
	panic("boom")
}

func until(t *testing.T, so func() bool) {
	t.Helper()
	if !cache.WaitForCacheSync(t.Context().Done(), so) {
		t.Fatal("it does not happen")
	}
}
