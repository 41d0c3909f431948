package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// of returns what a Probe says of a controller.
func of(t *testing.T, p *supervisor.Probe, controller string) supervisor.Status {
	t.Helper()
	synctest.Wait()
	for _, s := range p.Status() {
		if s.Controller == controller {
			return s
		}
	}
	t.Fatalf("nothing is known of %s", controller)
	return supervisor.Status{}
}

func TestAStatusSaysWhatAControllerFailedAtAlsoAfterItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, wake := supervisor.NewProbe(), make(chan struct{})
		if got := p.Status(); len(got) != 0 {
			t.Errorf("before any term: %+v", got)
		}
		tries := 0
		began := time.Now()
		health := control.Health{Pending: 3, Returned: 7, Sweep: control.Sweep{Running: true, Pending: 2, Returned: 5}}
		works := reporter(func() control.Health { health.Returned++; return health })
		works.Name = "works"
		cancel, ended, _ := supervise(t, supervisor.Config{Probe: p, DrainTimeout: time.Second, Tolerated: []string{"fails"}},
			works,
			descriptor("fails", func(context.Context) error { return errors.New("no luck") }),
			descriptor("panics once", func(ctx context.Context) error {
				if tries++; tries == 1 {
					panic("oh")
				}
				return untilCancelled(ctx)
			}),
			descriptor("is left out", func(context.Context) error { return control.ErrDisabled }),
			descriptor("hangs", func(ctx context.Context) error { <-ctx.Done(); <-wake; return nil }))
		time.Sleep(10 * time.Second)
		if got := of(t, p, "works"); got.State != "running" || !got.Since.Equal(began) || got.Health.Pending != 3 || got.Health.Returned < 8 || !got.Health.Sweep.Running || got.LastError != nil {
			t.Errorf("one that works: %+v", got)
		}
		if got := of(t, p, "fails"); got.State != "failed" || !got.Tolerated || got.LastError == nil || got.LastError.Error() != "no luck" || got.Effect != "failed, tried again" || got.Restarts == 0 || !got.Failed.After(began) {
			t.Errorf("one that fails: %+v", got)
		}
		if got := of(t, p, "panics once"); got.State != "running" || got.Panics != 1 || got.Restarts != 1 || !strings.Contains(got.LastError.Error(), "oh") || got.Effect != "restart" {
			t.Errorf("one that has panicked: %+v", got)
		}
		if got := of(t, p, "is left out"); got.State != "disabled" || !errors.Is(got.LastError, control.ErrDisabled) || got.Effect != "left out" {
			t.Errorf("one that is left out: %+v", got)
		}
		if got := supervisor.Stacks("hangs"); !strings.Contains(got, "TestAStatusSaysWhat") {
			t.Errorf("the stacks of one are %q", got)
		}
		cancel()
		time.Sleep(10 * time.Second)
		if got := of(t, p, "hangs"); got.State != "late" || got.LastError == nil {
			t.Errorf("one that does not stop: %+v", got)
		}
		close(wake)
		<-ended
		for _, name := range []string{"works", "fails", "hangs"} {
			if got := of(t, p, name); got.State != "stopped" || got.Health != (control.Health{}) || (got.LastError == nil) != (name == "works") {
				t.Errorf("%s after its term: %+v", name, got)
			}
		}
		if got := supervisor.Stacks("hangs"); got != "" {
			t.Errorf("the stacks of one that has returned are %q", got)
		}
	})
}

func TestAStatusSaysThatAControllerIsStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := supervisor.NewProbe()
		stalls := reporter(func() control.Health { return control.Health{Pending: 1} })
		cancel, ended, _ := supervise(t, supervisor.Config{Probe: p, DrainTimeout: time.Second}, stalls)
		time.Sleep(90 * time.Second)
		if got := of(t, p, stalls.Name); got.State != "stalled" || got.Stalls != 1 || got.LastError == nil || got.Effect != "" || got.Restarts != 0 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		if got := of(t, p, stalls.Name); got.Restarts != 1 || got.Effect != "restart" {
			t.Errorf("two minutes later: %+v", got)
		}
		cancel()
		<-ended
	})
}
