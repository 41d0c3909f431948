package supervisor_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// outcomes are what the documented table calls so.
var outcomes = map[string]func() error{
	"nil":         func() error { return nil },
	"error":       func() error { return errors.New("boom") },
	"panic":       func() error { panic("boom") },
	"ErrDisabled": func() error { return fmtError(control.ErrDisabled) },
	"ErrStepDown": func() error { return fmtError(control.ErrStepDown) },
	"ErrExit":     func() error { return fmtError(control.ErrExit) },
}

func fmtError(err error) error { return &wrapped{err} }

type wrapped struct{ error }

func (w *wrapped) Unwrap() error { return w.error }

// TestTheDocumentedTable runs every line of the table in docs/SUPERVISION.md.
func TestTheDocumentedTable(t *testing.T) {
	lines := table(t, "../../../../docs/SUPERVISION.md", "| outcome | when | restart | step-down | exit |")
	policies := []control.Policy{control.Restart, control.StepDown, control.Exit}
	for _, line := range lines {
		for i, policy := range policies {
			outcome, when, want := line[0], line[1], line[2+i]
			t.Run(strings.Join([]string{outcome, when, string(policy)}, "/"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if got := effectOf(t, outcome, when, policy); got != want {
						t.Errorf("got %q, documented is %q", got, want)
					}
				})
			})
		}
	}
	if len(lines) < 28 {
		t.Errorf("only %d lines", len(lines))
	}
}

// table reads a Markdown table with the given head.
func table(t *testing.T, file, head string) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), head+"\n")
	if !found {
		t.Fatalf("%s has no table %s", file, head)
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			return lines
		}
		if !strings.HasPrefix(line, "|--") {
			lines = append(lines, strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | "))
		}
	}
	return lines
}

// subject is a controller that has one outcome, in its first life.
type subject struct {
	t           *testing.T
	outcome     func() error
	when        string
	always      bool
	constructed int
	ready       chan struct{}
	stalls      bool
	hangs       chan struct{}
}

func (s *subject) construct(ctx context.Context, _ deps) (control.Controller, error) {
	s.constructed++
	s.ready = make(chan struct{})
	if s.when == "constructor" && s.now() && s.stalls {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.when == "constructor" && s.now() {
		return nil, s.outcome()
	}
	return s, nil
}

func (s *subject) now() bool { return s.always || s.constructed == 1 }

func (s *subject) Ready() <-chan struct{} { return s.ready }

func (s *subject) Report() control.Health {
	if s.stalls && s.now() {
		return control.Health{Pending: 1, Returned: 7}
	}
	return control.Health{}
}

func (s *subject) Run(ctx context.Context) error {
	if s.when == "starting" && s.now() && s.stalls {
		return untilCancelled(ctx)
	}
	if s.when == "starting" && s.now() {
		return s.outcome()
	}
	close(s.ready)
	if s.when == "running" && s.now() && !s.stalls {
		time.Sleep(time.Millisecond)
		return s.outcome()
	}
	<-ctx.Done()
	if s.hangs != nil && s.now() {
		<-s.hangs
	}
	if s.when == "draining" && s.outcome != nil {
		return s.outcome()
	}
	return ctx.Err()
}

// effectOf has a controller the outcome, and tells the effect by what can be seen.
func effectOf(t *testing.T, outcome, when string, policy control.Policy) string {
	t.Helper()
	s := &subject{t: t, when: when, outcome: outcomes[strings.TrimSuffix(outcome, ", tolerated")]}
	cfg := supervisor.Config{DrainTimeout: 5 * time.Second, Policies: control.Policies{Default: policy}}
	switch {
	case outcome == "stall":
		s.stalls = true
	case outcome == "too many stalls":
		s.stalls, s.always = true, true
	case outcome == "stall, does not stop":
		s.stalls, s.hangs = true, make(chan struct{})
	case outcome == "late":
		s.hangs = make(chan struct{})
	case outcome == "too many errors":
		s.outcome, s.always = outcomes["error"], true
	case strings.HasSuffix(outcome, ", tolerated"):
		s.always, cfg.Tolerated = true, []string{"subject"}
	}
	if s.outcome == nil && !s.stalls && s.hangs == nil {
		t.Fatalf("no outcome %q", outcome)
	}
	other := descriptor("other", untilCancelled)
	cancel, ended, _ := supervise(t, cfg, other, control.Descriptor[deps]{Name: "subject", New: s.construct})
	time.Sleep(4 * time.Minute)
	if outcome == "too many stalls" {
		time.Sleep(10 * time.Minute)
	}
	cancelled := when == "draining"
	if cancelled {
		cancel()
		synctest.Wait()
	}
	if s.hangs != nil {
		time.Sleep(2 * cfg.DrainTimeout)
		close(s.hangs)
		time.Sleep(time.Second)
	}
	select {
	case err := <-ended:
		switch {
		case errors.Is(err, control.ErrExit):
			return "exit"
		case err == nil && cancelled:
			return "ends with the term"
		case err == nil:
			return "returned nil"
		}
		return "step down"
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		return err.Error()
	}
	switch {
	case len(cfg.Tolerated) > 0 && s.constructed > 10:
		return "failed, tried again"
	case s.constructed == 2:
		return "restart"
	case s.constructed == 1:
		return "left out"
	}
	return "something else"
}
