package terms

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
)

// A record is written once: when the takeover is told, or else at the end of the term if the term still may. It costs
// the term nothing that fails.
func TestARecordIsWrittenOnceAndHoldsUpNothing(t *testing.T) {
	cause := func(c election.Cause) error { return fmt.Errorf("%w: because", c) }
	for name, test := range map[string]struct {
		told, ends time.Duration // after the beginning; zero: never told
		cause      error
		fails      int           // the first tries fail
		takes      time.Duration // how long a try takes
		tries      int
		ok         bool
		lasts      time.Duration // how long the end waits at most
	}{
		"it is told":                      {told: time.Second, ends: time.Hour, cause: cause(election.StepDown), tries: 1, ok: true},
		"it ends before":                  {ends: time.Second, cause: cause(election.StepDown), takes: time.Millisecond, tries: 1, ok: true, lasts: time.Millisecond},
		"its work returns before":         {ends: time.Second, cause: errWorkEnded, tries: 1, ok: true},
		"it fails before":                 {ends: time.Second, cause: cause(election.Failed), tries: 1, ok: true},
		"it is deposed before":            {ends: time.Second, cause: cause(election.Deposed)},
		"it is fenced before":             {ends: time.Second, cause: cause(election.Fenced)},
		"it cannot renew":                 {ends: time.Second, cause: cause(election.RenewDeadline)},
		"it ends while it is written":     {told: time.Second, ends: time.Second + time.Millisecond, cause: cause(election.StepDown), takes: 2 * time.Millisecond, tries: 2, ok: true, lasts: 2 * time.Millisecond},
		"the first try fails":             {told: time.Second, ends: time.Hour, cause: cause(election.StepDown), fails: 1, tries: 2, ok: true},
		"all tries fail":                  {told: time.Second, ends: time.Hour, cause: cause(election.StepDown), fails: 99, tries: recordTries},
		"it ends between two tries":       {told: time.Second, ends: 2 * time.Second, cause: cause(election.StepDown), fails: 99, tries: 1},
		"etcd is slow":                    {told: time.Second, ends: time.Hour, cause: cause(election.StepDown), takes: time.Hour, tries: recordTries},
		"etcd is slow, and it ends":       {ends: time.Second, cause: cause(election.Shutdown), takes: time.Hour, tries: 1, lasts: lastRecordTimeout},
		"etcd is slow, and it steps down": {told: time.Second, ends: 2 * time.Second, cause: cause(election.StepDown), takes: time.Hour, tries: 2, lasts: lastRecordTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				told := make(chan struct{})
				began := time.Now()
				if test.told > 0 {
					time.AfterFunc(test.told, func() { close(told) })
				}
				tries, ok := 0, false
				done := make(chan struct{})
				go func() {
					defer close(done)
					keepRecord(ctx, told, func(ctx context.Context, timeout time.Duration) error {
						if since := time.Since(began); test.told > 0 && since < test.told {
							t.Errorf("a try after %v", since)
						}
						ctx, cancel := context.WithTimeout(ctx, timeout)
						defer cancel()
						tries++
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(test.takes):
						}
						if tries <= test.fails {
							return errors.New("no space")
						}
						ok = true
						return nil
					})
				}()
				time.Sleep(test.ends)
				end(test.cause)
				asked := time.Now()
				<-done
				if waited := time.Since(asked); waited > test.lasts {
					t.Errorf("the end of the term waits for %v", waited)
				}
				if tries != test.tries || ok != test.ok {
					t.Errorf("%d tries, written: %v; want %d and %v", tries, ok, test.tries, test.ok)
				}
			})
		})
	}
}

// The record is not written before the first write of the term's controllers is answered, and has all phases.
func TestNoRecordIsWrittenBeforeTheTakeoverIsMeasured(t *testing.T) {
	if err := registerTimeline(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		timeline, work, end := newTimeline(t.Context(), "recorded", 1, election.Takeover{Trigger: election.TriggerDeath, Symptom: began, Decided: began, Sent: began, Acquired: began})
		defer end()
		control.Reached(work, control.Working)
		time.Sleep(time.Second)
		control.Reached(work, control.Reconciled)
		select {
		case <-timeline.done:
			t.Error("told before the first write")
		default:
		}
		runner := &Runner{terms: map[int]beginning{}}
		if _, _, ok := runner.Term(0); ok {
			t.Error("a term goes on before it has begun")
		}
		runner.terms[0] = beginning{timeline: timeline}
		if _, phases, ok := runner.Term(0); !ok || len(phases) != 5 || phases["first_reconcile"] != 1 {
			t.Errorf("of the term that goes on these phases are over: %v, %v", phases, ok)
		}
		time.Sleep(time.Second)
		send(t, timeline.writes(t.Context()), http.MethodPut, http.StatusOK)
		<-timeline.done
		if got := timeline.phases(); len(got) != 6 || got["first_reconcile"] != 1 || got["first_write"] != 2 {
			t.Errorf("the phases are %v", got)
		}
	})
}
