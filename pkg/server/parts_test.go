package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestALatePartIsNamedUntilItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p parts
		release := make(chan struct{})
		p.Go("slow", func() error { <-release; return nil })
		p.Go("quick", func() error { return nil })
		if p.JoinFor(time.Second) {
			t.Error("JoinFor reports that a running part has ended")
		}
		if got := p.Running(); !slices.Equal(got, []string{"slow"}) {
			t.Errorf("running: %q, want slow", got)
		}
		close(release)
		if !p.JoinFor(time.Second) || p.Running() != nil {
			t.Error("all parts have ended, JoinFor disagrees")
		}
		p.Join()
	})
}

func TestAPartsErrorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[string]error{}
		p := parts{failed: func(name string, err error) { told[name] = err }}
		broken := errors.New("broken")
		p.Go("a", func() error { return broken })
		p.Join()
		p.Go("b", func() error { return context.Canceled })
		p.Join()
		if len(told) != 1 || told["a"] != broken {
			t.Errorf("told %v, want a's error and none of b, which was asked to end", told)
		}
	})
}
