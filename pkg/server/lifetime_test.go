package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestALateGoroutineIsNamedUntilItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g goroutines
		release := make(chan struct{})
		g.Go("slow", func() error { <-release; return nil })
		g.Go("quick", func() error { return nil })
		if g.JoinFor(time.Second) {
			t.Error("JoinFor reports that a running goroutine has ended")
		}
		if got := g.Running(); !slices.Equal(got, []string{"slow"}) {
			t.Errorf("running: %q, want slow", got)
		}
		close(release)
		if !g.JoinFor(time.Second) || g.Running() != nil {
			t.Error("all goroutines have ended, JoinFor disagrees")
		}
		g.Join()
	})
}

func TestAGoroutinesErrorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[string]error{}
		g := goroutines{failed: func(name string, err error) { told[name] = err }}
		broken := errors.New("broken")
		g.Go("a", func() error { return broken })
		g.Join()
		g.Go("b", func() error { return context.Canceled })
		g.Join()
		if len(told) != 1 || told["a"] != broken {
			t.Errorf("told %v, want a's error and none of b, which was asked to end", told)
		}
	})
}
