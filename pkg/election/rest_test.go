package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// A replica that has failed several times rests for half a minute, but only while nobody has led since, or while the
// last leader has failed, too. The shard does not stay without a leader because of a failure that is over.
func TestARestEndsWithTheNextSoundTerm(t *testing.T) {
	const failures = 6 // rests of 1, 2, 4, 8, 16 and 32 s
	for name, lose := range map[string]func(*couple){
		"which dies":               func(c *couple) { cutOff(c.standby); c.ofHeir.seem(election.Dead) },
		"which is stepped down":    func(c *couple) { _, _ = c.standby.elector.StepDown("asked", "") },
		"whose Lease is deleted":   func(c *couple) { cutOff(c.standby); c.store.Delete() },
		"which ends with its host": func(c *couple) { c.standby.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fails := make(chan struct{}, failures)
				c := newCouple(t, election.DetectCrash, true, func(ctx context.Context, _ election.Term) error {
					select {
					case <-fails:
						return errors.New("so it fails")
					case <-ctx.Done():
						return nil
					}
				})
				c.standby.stop()
				for range failures {
					fails <- struct{}{}
				}
				time.Sleep(time.Second << (failures - 1))
				c.standby.run(nil)
				c.standby.mustLead()
				if n := len(c.leader.all()); n != failures {
					t.Fatalf("it has failed in %d terms", n)
				}
				lose(c)
				at := time.Now()
				if took := c.leader.mustLead().began.Sub(at); took != 0 {
					t.Errorf("leads after %v", took)
				}
				c.standby.client.Always(electiontest.Fault{})
				if name != "which ends with its host" {
					c.standby.stop()
				}
				c.leader.stop()
			})
		})
	}
}

// Two replicas that both fail do not take turns without a pause.
func TestARestCountsWhileTheOthersFailToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context, election.Term) error { return errors.New("so it fails") }
		store := electiontest.NewStore(leaseName)
		a, b := start(t, store, fails), start(t, store, fails)
		time.Sleep(time.Hour)
		if n := len(a.all()) + len(b.all()); n > 2*70 {
			t.Errorf("%d terms in an hour", n)
		}
		a.stop()
		b.stop()
	})
}
