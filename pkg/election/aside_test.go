package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

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

// The leader need not wait to see whether its next attempt succeeds.
func TestALeaderThatIsRefusedStepsAsideWithItsNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectCrash, true, nil)
		defer c.stop()
		c.leader.client.Always(electiontest.Fault{Err: errRefused})
		renewed := c.leader.all()[0].began
		time.Sleep(renew)
		if took := c.standby.mustLead().began.Sub(renewed); took > 3*retry+moment {
			t.Errorf("another leads %v after the last renewal", took)
		}
	})
}

// One write of the leader is lost. From then on everybody can read and write, the leader a little more slowly than its
// standby.
func TestOneLostRenewalEndsNoTerm(t *testing.T) {
	for name, fault := range map[string]electiontest.Fault{
		"lost": {Hang: true}, "lost on the way back": {LoseReply: true}, "refused": {Err: errRefused},
		"answered when nobody waits any more": {AnswerDelay: renew},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectCrash, true, nil)
				defer c.stop()
				c.leader.client.Always(electiontest.Fault{Delay: 5 * time.Millisecond})
				c.standby.client.Always(electiontest.Fault{Delay: 2 * time.Millisecond})
				c.leader.client.Next(electiontest.Update, fault)
				time.Sleep(2 * lease)
				if terms := c.leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
					t.Errorf("the term ended: %v", terms[0].cause)
				}
				c.leader.client.Wait()
			})
		})
	}
}

// A conflict is an answer, so the store can be reached. Somebody has edited the Lease, or a renewal that seemed lost
// was committed.
func TestAConflictOfARenewalIsNoReasonToStepAside(t *testing.T) {
	slow, refused := electiontest.Fault{AnswerDelay: moment}, electiontest.Fault{Err: errRefused}
	for name, test := range map[string]struct {
		mode           election.Mode
		updates, lists []electiontest.Fault
		edit           func(*coordinationv1.Lease)
	}{
		"edited":                   {election.Renewed{}, []electiontest.Fault{{Hang: true}}, []electiontest.Fault{slow, slow}, label},
		"edited, mode coordinated": {election.Coordinated{}, []electiontest.Fault{{Hang: true}}, []electiontest.Fault{slow, slow}, label},
		"made after all":           {election.Renewed{}, []electiontest.Fault{{LoseReply: true}, refused}, []electiontest.Fault{refused, refused, slow}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, network := electiontest.NewStore(leaseName), newNetwork()
				store.Fence()
				leader := start(t, store, nil, inMode(test.mode), detectBy(network.join("a"), election.DetectCrash, true))
				leader.mustLead()
				standby := start(t, store, nil, inMode(test.mode), detectBy(network.join("b"), election.DetectCrash, true))
				time.Sleep(2 * retry)
				history, asked := store.History(), standby.client.Count(electiontest.Create)
				renewed := history[len(history)-1].At
				leader.client.Next(electiontest.Update, test.updates...)
				leader.client.Next(electiontest.List, test.lists...)
				// it has failed, and reads the Lease
				time.Sleep(time.Until(renewed.Add(retry + renew/3 + moment/2)))
				if test.edit != nil {
					store.Edit(test.edit)
				}
				time.Sleep(2 * lease)
				if terms := leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
					t.Errorf("the term ended: %v", terms[0].cause)
				}
				if standby.client.Count(electiontest.Create) == asked {
					t.Error("the standby was not asked whether it could write")
				}
				leader.client.Wait()
				standby.stop()
				leader.stop()
			})
		})
	}
}

// Another leader could not write either. Reads, watches and deletions need no space.
func TestAStoreOutOfSpaceIsNoReasonToStepAside(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"for a while": renew - 2*retry, "for long": lease} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectCrash, true, nil)
				defer c.stop()
				full := time.Now()
				for _, client := range []*electiontest.Client{c.leader.client, c.standby.client} {
					client.Always(electiontest.Fault{Err: errNoSpace}, electiontest.Create, electiontest.Update)
				}
				time.Sleep(lasts)
				for _, client := range []*electiontest.Client{c.leader.client, c.standby.client} {
					client.Always(electiontest.Fault{})
				}
				time.Sleep(2 * retry)
				if lasts < renew {
					if terms := c.leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
						t.Errorf("the term ended: %v", terms[0].cause)
					}
				} else if led := c.leader.mustEnd(0, election.RenewDeadline).ended.Sub(full); led < renew-retry {
					t.Errorf("the term ended after %v, before its deadline", led)
				}
			})
		})
	}
}

// A standby may test as often as it is asked whether it could write the Lease: the test changes nothing.
func TestAStandbyThatIsAskedWhetherItCouldWriteChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectCrash, true, nil)
		defer c.stop()
		const asks = 50
		before := c.store.Lease()
		for range asks { // all of them before the next renewal
			c.ofLeader.Say(election.Statement{Holder: c.store.Holder(), Condition: election.Troubled})
			time.Sleep(10 * time.Millisecond)
		}
		if tried := c.standby.client.Count(electiontest.Create); tried < asks {
			t.Errorf("it tried %d times", tried)
		}
		if after := c.store.Lease(); after.ResourceVersion != before.ResourceVersion || len(c.store.Others()) != 0 {
			t.Errorf("the Lease was %v, is %v, and there are %q", before, after, c.store.Others())
		}
	})
}

// Somebody deletes the Lease while the standby tests whether it could write it.
func TestALeaseThatAStandbyMakesByAskingIsFreeAndGoesOnFromTheLastEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectCrash, true, nil)
		defer c.stop()
		clients := []*electiontest.Client{c.leader.client, c.standby.client}
		for _, client := range clients {
			client.HoldWatches(true)
		}
		c.standby.client.Next(electiontest.List, electiontest.Fault{AnswerDelay: moment})
		c.ofLeader.Say(election.Statement{Holder: c.store.Holder(), Condition: election.Troubled})
		time.Sleep(moment / 2)
		c.store.Delete()
		time.Sleep(moment)
		if made := c.store.Lease(); made == nil || c.store.Holder() != "" || ptr.Deref(made.Spec.LeaseTransitions, 0) != 1 {
			t.Errorf("there is the Lease %v, want a free one of epoch 1", made)
		}
		for _, client := range clients {
			client.HoldWatches(false)
		}
		time.Sleep(moment)
		if epoch := c.store.History()[len(c.store.History())-1].Epoch(); epoch != 2 || c.store.Holder() == "" {
			t.Errorf("the next epoch is %d, of %q", epoch, c.store.Holder())
		}
	})
}

// A confirmation names the term that it is about. If it names another term it is late, and ends nothing.
func TestAnAnswerAboutAnotherTermEndsNone(t *testing.T) {
	for of, ends := range map[string]bool{"another": false, "this": true} {
		t.Run("of "+of+" term", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectCrash, true, nil)
				cutOff(c.standby) // it answers nothing itself
				c.silenceLeader()
				history := c.store.History()
				renewed := history[len(history)-1].At
				// until a renewal has failed
				time.Sleep(time.Until(renewed.Add(retry + renew/3 + moment)))
				says := election.Confirmation{Standby: election.Standby{Replica: "b", Mode: election.Renewed{}.Name()}, Holder: "host_of-another-term"}
				if ends {
					says.Holder = c.store.Holder()
				}
				c.ofLeader.confirmations <- says
				time.Sleep(renew/3 + moment) // before its deadline
				if end := c.leader.all()[0].ended; end.IsZero() == ends {
					t.Errorf("the term's end is %v", end)
				}
				c.standby.client.Always(electiontest.Fault{})
				c.stop()
			})
		})
	}
}
