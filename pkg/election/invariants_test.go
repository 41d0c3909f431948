package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// I4: losing leadership by itself never ends Run. I5: the n+1st term is like the first, and leaves nothing behind.
func TestHundredsOfLossesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const losses = 300
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		r.mustLead()
		var after1 int
		for i := range losses {
			if i%2 == 0 {
				store.Take("foreign", lease)
				time.Sleep(moment)
				store.Free()
			} else {
				store.Delete()
			}
			r.mustLead()
			r.mustEnd(i, election.Deposed)
			if i == 0 {
				after1 = runtime.NumGoroutine()
			}
		}
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > after1+2 { // the test binary has some of its own
			t.Errorf("%d goroutines after %d losses, %d after the first", n, losses, after1)
		}
		terms := r.all()
		for i := 1; i < len(terms); i++ {
			if terms[i].Epoch() <= terms[i-1].Epoch() {
				t.Errorf("epoch %d after %d: across a deletion, too, epochs grow", terms[i].Epoch(), terms[i-1].Epoch())
			}
			if terms[i].Token().Holder == terms[i-1].Token().Holder {
				t.Errorf("two terms of holder %s", terms[i].Token().Holder)
			}
		}
		t.Logf("goroutines after 1 loss: %d, after %d: %d", after1, losses, runtime.NumGoroutine())
		r.stop()
	})
}

// I6: at the drain deadline the elector stops renewing without releasing, and campaigns again only when the work is
// joined.
func TestLateWorkQuarantinesUntilItIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		hung := make(chan struct{})
		wake := sync.OnceFunc(func() { close(hung) })
		r := start(t, store, func(ctx context.Context, leads election.Term) error {
			<-ctx.Done()
			if leads.Epoch() == 1 {
				<-hung
			}
			return nil
		}, func(cfg *election.Config) { cfg.RetryPeriod = 3 * time.Second })
		defer r.stop()
		defer wake()
		late := r.mustLead()
		other := start(t, store, nil)

		time.Sleep(3 * time.Second)
		r.client.Always(electiontest.Fault{Err: errRefused})
		time.Sleep(lease - drain)
		r.mustEnd(0, election.RenewDeadline)
		r.client.Always(electiontest.Fault{}) // while it drains it renews again
		time.Sleep(drain)
		if holder := store.Holder(); holder != late.Token().Holder {
			t.Errorf("after the drain deadline the lease is held by %q, want it unreleased", holder)
		}
		writes := r.client.Count(electiontest.Update)
		time.Sleep(lease)
		if _, ok := other.leading(); !ok {
			t.Error("nobody else leads although the lease has expired")
		}
		other.stop()
		time.Sleep(time.Minute)
		if n := r.client.Count(electiontest.Update) - writes; n != 0 {
			t.Errorf("the quarantined replica wrote %d times", n)
		}
		if store.Holder() != "" {
			t.Errorf("held by %q", store.Holder())
		}
		wake()
		r.mustLead() // whole again, without a restart
	})
}

// I6: a quarantined replica whose work ends before its lease has expired clears the holder.
func TestWorkThatIsJoinedBeforeTheExpiryClearsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(drain + time.Second)
			return nil
		})
		r.mustLead()
		other := start(t, store, nil)
		defer other.stop()
		time.Sleep(moment)
		stopped := time.Now()
		r.stop()
		other.mustLead()
		if took := time.Since(stopped); took > drain+time.Second+2*moment {
			t.Errorf("the other leads after %v", took)
		}
	})
}

// I7: a leader that cannot do its work does not keep the lease: it steps down and backs off, longer each time.
func TestFailingWorkStepsDownAndBacksOff(t *testing.T) {
	for name, failure := range map[string]func() error{
		"error":  func() error { return errors.New("cannot") },
		"panic":  func() error { panic("cannot") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				r := start(t, store, func(context.Context, election.Term) error { return failure() })
				time.Sleep(10 * time.Minute)
				terms := r.all()
				for i, want := 1, time.Second; i < len(terms); i, want = i+1, min(2*want, time.Minute) {
					if rest := terms[i].began.Sub(terms[i-1].joined); rest < want || rest > want+moment {
						t.Errorf("rested %v after failure %d, want %v", rest, i, want)
					}
				}
				if len(terms) < 10 {
					t.Errorf("only %d terms in ten minutes: a free lease that nobody else takes is taken", len(terms))
				}
				if lease := store.Lease(); store.Holder() != "" || !strings.Contains(fmt.Sprint(lease.Annotations), "failed: ") {
					t.Errorf("want the lease released, with the cause: %v", lease)
				}
				r.stop()
			})
		})
	}
}

// I7: another replica leads at once, and the failing one does not take the lease back from it.
func TestAFailingReplicaLosesTheLeaseToAHealthyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		bad := start(t, store, func(context.Context, election.Term) error { return errors.New("cannot") })
		defer bad.stop()
		synctest.Wait()
		good := start(t, store, nil)
		defer good.stop()
		time.Sleep(time.Hour)
		if terms := good.all(); len(terms) != 1 || terms[0].Epoch() != 2 {
			t.Errorf("the healthy replica's terms: %v, want one, the second of all", terms)
		}
	})
}

func TestAHealthyTermResetsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		var n int
		r := start(t, store, func(context.Context, election.Term) error {
			if n++; n == 5 {
				time.Sleep(2 * time.Minute)
			}
			return errors.New("cannot")
		})
		time.Sleep(10 * time.Minute)
		terms := r.all()
		if rest := terms[5].began.Sub(terms[4].joined); rest > time.Second+moment {
			t.Errorf("rested %v after a term of two minutes, want the shortest back-off", rest)
		}
		r.stop()
	})
}

func TestWorkThatIsDoneStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, func(context.Context, election.Term) error { time.Sleep(time.Minute); return nil })
		other := start(t, store, nil, func(cfg *election.Config) {
			cfg.Client.(*electiontest.Client).Next(electiontest.List, electiontest.Fault{Delay: time.Second})
		})
		r.mustLead()
		time.Sleep(time.Minute)
		other.mustLead()
		if n := len(r.all()); n != 1 {
			t.Errorf("%d terms of the replica that stepped down, want it to leave the lease to the other", n)
		}
		other.stop()
		time.Sleep(retry)
		r.mustLead()
		r.stop()
	})
}

func TestErrExitReleasesAndEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		fatal := fmt.Errorf("cannot go on: %w", election.ErrExit)
		r := start(t, store, func(context.Context, election.Term) error { return fatal })
		if err := <-r.result; err != fatal {
			t.Errorf("Run returned %v, want what its work returned", err)
		}
		if store.Holder() != "" {
			t.Error("the lease is still held")
		}
	})
}

func TestTheTokenNamesTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		token := r.mustLead().Token()
		lease := store.Lease()
		if token.Cluster != "system:admin" || token.Namespace != "kube-system" || token.Name != leaseName ||
			token.UID != lease.UID || token.Holder != *lease.Spec.HolderIdentity || token.Epoch != 1 ||
			!strings.HasPrefix(token.Holder, "host_") {
			t.Errorf("token is %v, the Lease %v", token, lease)
		}
	})
}

// I7 and I6 together: work that has failed, but hangs, does not keep the lease. Its replica is quarantined, another one
// leads when the lease has expired.
func TestWorkThatFailsAndHangsLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		released := make(chan struct{})
		bad := start(t, store, func(ctx context.Context, _ election.Term) error {
			election.Fail(klog.NewContext(ctx, klog.FromContext(ctx)), errors.New("cannot"))
			election.Fail(ctx, errors.New("cannot either"))
			<-released
			return errors.New("cannot")
		})
		defer bad.stop()
		synctest.Wait()
		good := start(t, store, nil)
		defer good.stop()
		time.Sleep(time.Minute)
		if failed := bad.mustEnd(0, election.Failed); !strings.Contains(failed.cause.Error(), "cannot") || failed.ended.Sub(failed.began) > moment {
			t.Errorf("the term ended after %v: %v", failed.ended.Sub(failed.began), failed.cause)
		}
		good.mustLead()
		if n := len(bad.all()); n != 1 {
			t.Errorf("%d terms beside work that hangs", n)
		}
		close(released)
		time.Sleep(time.Minute)
		good.mustLead()
	})
}

func TestFailOutsideOfATermDoesNothing(t *testing.T) {
	election.Fail(t.Context(), errors.New("nobody listens"))
}
