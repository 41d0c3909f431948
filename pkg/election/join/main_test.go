package join

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const soon = 30 * time.Second

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(soon); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// ends returns a channel that is closed when f has returned.
func ends(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return done
}

// mustEnd waits for a channel that is closed.
func mustEnd(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("not in time: %s", what)
	}
}

// staysOpen fails the test if done is closed although two more looks at the goroutines have been taken.
func staysOpen(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	from := looks.begun.Load()
	eventually(t, "two more looks", func() bool { return looks.begun.Load() >= from+2 || closed(done) })
	if closed(done) {
		t.Errorf("%s too early", what)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// quiet reports nothing.
var quiet = Options{Patience: -1}

func scope(t testing.TB) *Scope {
	t.Helper()
	return New(context.WithoutCancel(t.Context()), quiet)
}
