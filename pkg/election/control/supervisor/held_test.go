package supervisor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// tenants is a controller whose keys are of tenants, "a/1" of a. What is of one of hang never returns, whatever its
// context does, until release is closed.
type tenants struct {
	*loop.Loop[string]
}

func newTenants(release <-chan struct{}, hang string) *tenants {
	c := &tenants{loop.New("a", 4, func(_ context.Context, key string) error {
		if strings.Contains(hang, key[:1]) {
			<-release
		}
		return nil
	})}
	c.By(func(key string) string { return key[:1] })
	return c
}

func describe(c control.Controller) control.Descriptor[deps] {
	return control.Descriptor[deps]{Name: "a", New: func(context.Context, deps) (control.Controller, error) { return c, nil }}
}

// A tenant whose reconciles all hang takes the term from nobody, for however long nobody else has work. It is told of.
func TestATenantThatHangsAloneTakesNobodysTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, p := make(chan struct{}), supervisor.NewProbe()
		c := newTenants(release, "a")
		cancel, ended, log := supervise(t, supervisor.Config{Probe: p}, describe(c))
		synctest.Wait()
		for n := range 20 {
			c.Add("a/" + strings.Repeat("x", n))
		}
		time.Sleep(time.Hour)
		expectRunning(t, ended)
		got := of(t, p, "a")
		if got.State != "running" || got.HeldBy != "a" || got.Restarts+got.Stalls != 0 || got.LastError != nil {
			t.Errorf("after an hour: %+v", got)
		}
		if strings.Count(log(), "Controller is held") != 1 || !strings.Contains(log(), `group="a"`) || strings.Contains(log(), "stalled") {
			t.Errorf("logged: %s", log())
		}
		if n := sample(t, "regent_controller_held", "a", ""); n != 1 {
			t.Errorf("the metric is %v", n)
		}
		for range 100 { // others are worked for
			c.Add("b/1")
			time.Sleep(time.Second)
		}
		if got := of(t, p, "a"); got.State != "running" || got.Health.Returned != 100 {
			t.Errorf("beside others: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		close(release)
		time.Sleep(2 * time.Second)
		if got := of(t, p, "a"); got.HeldBy != "" || !strings.Contains(log(), "no longer held") || sample(t, "regent_controller_held", "a", "") != 0 {
			t.Errorf("when it goes on: %+v", got)
		}
		cancel()
		<-ended
	})
}

// A controller that hangs for everybody is found as soon as a second tenant has work.
func TestAControllerThatHangsIsFoundWhenASecondTenantComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := newTenants(release, "ab")
		cancel, ended, log := supervise(t, supervisor.Config{}, describe(c))
		synctest.Wait()
		c.Add("a/1")
		time.Sleep(10 * time.Minute)
		c.Add("b/1")
		time.Sleep(50 * time.Second)
		if strings.Contains(log(), "stalled") {
			t.Errorf("the time before the second one came counts: %s", log())
		}
		time.Sleep(20 * time.Second)
		if !strings.Contains(log(), "Controller is stalled") {
			t.Errorf("not found: %s", log())
		}
		time.Sleep(time.Minute)
		close(release)
		synctest.Wait()
		if !strings.Contains(log(), "Controller failed") {
			t.Errorf("not cancelled: %s", log())
		}
		cancel()
		<-ended
	})
}
