package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// errNoSpace is what an API server answers to every write that needs space while etcd is full.
var errNoSpace = apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded"))

func TestALeaderThatCannotRenewStepsAsideForAStandbyThatCouldWriteTheLease(t *testing.T) {
	for name, fenced := range map[string]bool{"fenced": true, "unfenced": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const slow = 300 * time.Millisecond
				c := newCouple(t, election.DetectCrash, fenced, func(ctx context.Context, _ election.Term) error {
					<-ctx.Done()
					time.Sleep(slow)
					return nil
				})
				defer c.stop()
				c.silenceLeader()
				cut := time.Now()
				time.Sleep(renew)
				leads := c.standby.mustLead()
				if took := leads.began.Sub(cut); took < 2*retry || took >= renew {
					t.Errorf("leads %v after the leader was cut off, want it after two retry periods, and before the leader's deadline", took)
				}
				old := c.leader.mustEnd(0, election.RenewDeadline)
				if leads.began.Before(old.joined) {
					t.Errorf("leads %v before the old term was joined", old.joined.Sub(leads.began))
				}
				if trigger := leads.Takeover().Trigger; trigger != election.TriggerStepAside {
					t.Errorf("leads because of %q", trigger)
				}
			})
		})
	}
}

func TestALeaderThatCannotRenewLeadsOnIfNobodyElseReachesTheStore(t *testing.T) {
	for name, prepare := range map[string]func(*couple){
		"the standby reads nothing": func(c *couple) { c.standby.client.Always(electiontest.Fault{Hang: true}) },
		"the standby writes nothing": func(c *couple) {
			c.standby.client.Always(electiontest.Fault{Err: errNoSpace}, electiontest.Create, electiontest.Update)
		},
		"the standby stops": func(c *couple) { c.standby.stop() },
		"an answer to another question": func(c *couple) {
			c.standby.client.Always(electiontest.Fault{Hang: true})
			for range cap(c.ofLeader.confirmations) {
				c.ofLeader.confirmations <- election.Confirmation{Standby: election.Standby{Replica: "b"}, Holder: c.store.Holder()}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectSuspect, true, nil)
				prepare(c)
				c.silenceLeader()
				cut := time.Now()
				time.Sleep(renew - retry)
				if _, leads := c.leader.leading(); !leads {
					t.Fatalf("it gave up: %v", c.leader.all())
				}
				time.Sleep(retry + retry)
				if end := c.leader.mustEnd(0, election.RenewDeadline); end.ended.Sub(cut) < renew-retry {
					t.Errorf("it gave up after %v", end.ended.Sub(cut))
				}
				c.leader.client.Always(electiontest.Fault{})
				c.standby.client.Always(electiontest.Fault{})
				if name != "the standby stops" {
					c.standby.stop()
				}
				c.leader.stop()
			})
		})
	}
}

// A leader that renews again after it was in trouble leads on, even if a confirmation arrives late.
func TestATroubleThatIsOverEndsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectCrash, true, nil)
		c.standby.client.Always(electiontest.Fault{Hang: true})
		c.silenceLeader()
		time.Sleep(2*retry + retry/2)
		c.leader.client.Always(electiontest.Fault{})
		c.standby.client.Always(electiontest.Fault{})
		time.Sleep(10 * lease)
		if terms := c.leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
			t.Errorf("terms: %v", terms)
		}
		c.stop()
	})
}

// If the store's writes are slow, another leader would gain nothing. Each write that succeeds keeps the term.
func TestALeaderWhoseRenewalsAreSlowStepsAsideForNobody(t *testing.T) {
	for name, delays := range map[string][]time.Duration{
		"all of them":      {2500 * time.Millisecond},
		"one now and then": {0, 0, 3 * time.Second, time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectCrash, true, nil)
				defer c.stop()
				for i := range 100 {
					c.leader.client.Next(electiontest.Update, electiontest.Fault{Delay: delays[i%len(delays)]})
				}
				time.Sleep(3 * time.Minute)
				if terms := c.leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
					t.Errorf("terms: %v", terms)
				}
			})
		})
	}
}

// A store may fail everybody for a while, for example while etcd elects its leader or an API server restarts. A follower can then
// write no sooner than the leader, whose next attempt succeeds.
func TestWhatEverybodySuffersEndsNoTermIfItIsOverInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fault, longest := electiontest.Fault{Hang: true}, 2500
		switch rapid.SampledFrom([]string{"hangs", "answers nothing", "refuses"}).Draw(rt, "how") {
		case "answers nothing": // and makes what it is asked for
			fault = electiontest.Fault{LoseReply: true}
		case "refuses":
			fault, longest = electiontest.Fault{Err: errRefused}, 5500
		}
		after := time.Duration(rapid.IntRange(0, 1999).Draw(rt, "after ms")) * time.Millisecond
		lasts := time.Duration(rapid.IntRange(1, longest).Draw(rt, "lasts ms")) * time.Millisecond
		slow := func(what string) electiontest.Fault {
			return electiontest.Fault{AnswerDelay: time.Duration(rapid.IntRange(1, 50).Draw(rt, what)) * time.Millisecond}
		}
		ofLeader, ofStandby := slow("leader's ms"), slow("standby's ms")
		var cause error
		synctest.Test(t, func(t *testing.T) {
			c := newCouple(t, election.DetectCrash, true, nil)
			defer c.stop()
			time.Sleep(after)
			for _, client := range []*electiontest.Client{c.leader.client, c.standby.client} {
				client.Always(fault)
			}
			time.Sleep(lasts)
			c.leader.client.Always(ofLeader)
			c.standby.client.Always(ofStandby)
			time.Sleep(2 * lease)
			for _, term := range c.leader.all() {
				if !term.ended.IsZero() {
					cause = term.cause
				}
			}
		})
		if cause != nil {
			rt.Fatalf("the term ended: %v", cause)
		}
	})
}
