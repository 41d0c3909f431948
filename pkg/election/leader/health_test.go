package leader_test

import (
	"context"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

func TestTheHealthCheckTellsOfLateWorkAndOfAnElectionThatHasEnded(t *testing.T) {
	s := newServer(t)
	l := s.newLeader(t)
	healthy := func() bool { return l.Check(nil) == nil }
	unhealthy := func(why string) func() bool {
		return func() bool { err := l.Check(nil); return err != nil && strings.Contains(err.Error(), why) }
	}
	if !healthy() {
		t.Errorf("before Start: %v", l.Check(nil))
	}
	if l.EndTimeout() <= 0 {
		t.Errorf("Stop takes at most %v", l.EndTimeout())
	}
	hangs, gate, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
	began := 0
	err := l.Start(t.Context(), func(ctx context.Context, _ election.Term) error {
		if began++; began == 1 {
			close(hangs)
			<-gate // it does not look at its context
			return nil
		}
		close(again)
		return election.ErrExit
	})
	if err != nil {
		t.Fatal(err)
	}
	<-hangs
	if !healthy() {
		t.Errorf("a leader: %v", l.Check(nil))
	}
	s.store.Free()
	eventually(t, "the late work is told of", unhealthy("has not stopped"))
	close(gate)
	<-again
	eventually(t, "the end of the election is told of", unhealthy("has ended"))
	if err := l.Stop(); err == nil {
		t.Error("Stop says nothing of the election that has ended by itself")
	}
}
