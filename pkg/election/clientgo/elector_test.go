package clientgo_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// What cannot be honoured is refused with an error that names the field, and RunOrDie panics with it.
func TestWhatCannotBeHonouredIsRefused(t *testing.T) {
	for field, change := range map[string]func(*leaderelection.LeaderElectionConfig){
		"OnStartedLeading": func(lec *leaderelection.LeaderElectionConfig) { lec.Callbacks.OnStartedLeading = nil },
		"OnStoppedLeading": func(lec *leaderelection.LeaderElectionConfig) { lec.Callbacks.OnStoppedLeading = nil },
		"ReleaseOnCancel":  func(lec *leaderelection.LeaderElectionConfig) { lec.ReleaseOnCancel = false },
		"NewLeaderHealthzAdaptor": func(lec *leaderelection.LeaderElectionConfig) {
			lec.WatchDog = leaderelection.NewLeaderHealthzAdaptor(time.Second)
		},
		"Coordinated":             func(lec *leaderelection.LeaderElectionConfig) { lec.Coordinated = true },
		"Lock is nil":             func(lec *leaderelection.LeaderElectionConfig) { lec.Lock = nil },
		"*resourcelock.MultiLock": func(lec *leaderelection.LeaderElectionConfig) { lec.Lock = &resourcelock.MultiLock{} }, //nolint:staticcheck // deprecated since 1.37, and refused
		"Lock.Client":             func(lec *leaderelection.LeaderElectionConfig) { lec.Lock.(*resourcelock.LeaseLock).Client = nil },
		"Lock.LockConfig.Identity": func(lec *leaderelection.LeaderElectionConfig) {
			lec.Lock.(*resourcelock.LeaseLock).LockConfig.Identity = ""
		},
		"Name":          func(lec *leaderelection.LeaderElectionConfig) { lec.Lock.(*resourcelock.LeaseLock).LeaseMeta.Name = "" },
		"LeaseDuration": func(lec *leaderelection.LeaderElectionConfig) { lec.LeaseDuration = 15500 * time.Millisecond },
		"RenewDeadline": func(lec *leaderelection.LeaderElectionConfig) { lec.RenewDeadline = lec.LeaseDuration },
		"RetryPeriod":   func(lec *leaderelection.LeaderElectionConfig) { lec.RetryPeriod = 0 },
	} {
		t.Run(field, func(t *testing.T) {
			lec := newConfig(electiontest.NewStore(leaseName).Client(), "me", &diary{}, nil)
			change(&lec)
			_, err := clientgo.NewLeaderElector(lec)
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("error %v, want one that names %s", err, field)
			}
			defer func() {
				if recover() == nil {
					t.Error("RunOrDie did not panic")
				}
			}()
			clientgo.RunOrDie(t.Context(), lec)
		})
	}
}

func TestRunOrDieLeadsForOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := electiontest.NewStore(leaseName), &diary{}
		lec := newConfig(store.Client(), "me", d, func(ctx context.Context) {
			store.Delete()
			<-ctx.Done()
		})
		for range 3 {
			clientgo.RunOrDie(t.Context(), lec, func(cfg *election.Config) { cfg.DrainTimeout = time.Second })
		}
		if got := strings.Count(strings.Join(d.all(), " "), "stopped leading"); got != 3 {
			t.Errorf("%d terms: %q", got, d.all())
		}
	})
}

// A panic of the work ends the process as with client-go, but the lease is free by then.
func TestAPanicGoesOnWhenTheLeaseIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "ours", func(context.Context) { panic("so it panics") })
		defer func() {
			if value := fmt.Sprint(recover()); !strings.Contains(value, "so it panics") || !strings.Contains(value, "elector_test.go") {
				t.Errorf("Run panicked with %q", value)
			}
			if s.store.Holder() != "" || !s.diary.has("stopped") {
				t.Errorf("held by %q, %q", s.store.Holder(), s.diary.all())
			}
		}()
		s.elector.Run(t.Context())
	})
}

// Work that ends its goroutine has returned.
func TestWorkThatEndsItsGoroutineHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "ours", func(context.Context) { runtime.Goexit() })
		s.run()
		if !s.elector.IsLeader() {
			t.Error("does not lead")
		}
		s.cancel()
		if !s.isOver() {
			t.Error("Run has not returned")
		}
	})
}

// Work that does not stop makes the check fail when the lease must have expired for others, and not before. The lease
// is not released. When the work stops, Run returns.
func TestTheCheckFailsForWorkThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newScene(t, "ours", func(context.Context) { <-release })
		check := clientgo.NewLeaderHealthzAdaptor(5 * time.Second)
		if err := check.Check(nil); err != nil || check.Name() != "leaderElection" {
			t.Errorf("%s without an elector: %v", check.Name(), err)
		}
		check.SetLeaderElection(s.elector.(*clientgo.LeaderElector))
		s.run()
		if err := check.Check(nil); err != nil {
			t.Error(err)
		}
		s.cancel()
		time.Sleep(lease + 5*time.Second - moment)
		if err := check.Check(nil); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * moment)
		if err := check.Check(nil); err == nil {
			t.Error("the work goes on, and the check passes")
		}
		if s.isOver() || s.store.Holder() == "" {
			t.Errorf("over: %v, held by %q", s.isOver(), s.store.Holder())
		}
		close(release)
		<-s.over
		if err := check.Check(nil); err != nil {
			t.Errorf("the work has stopped: %v", err)
		}
	})
}

// A Detector and all else that an election can do is at hand.
func TestTheElectionCanBeAdjusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 10)
		store, d := electiontest.NewStore(leaseName), &diary{}
		le, err := clientgo.NewLeaderElector(newConfig(store.Client(), "me", d, nil), func(cfg *election.Config) {
			cfg.Replica, cfg.Changed = "replica-1", func() { changed <- struct{}{} }
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); le.Run(ctx) }()
		<-changed
		synctest.Wait()
		if le.GetLeader() != "replica-1" || !d.has("leader replica-1") {
			t.Errorf("%q leads: %q", le.GetLeader(), d.all())
		}
		cancel()
		<-over
	})
}

// A program that is slow to take note of a leader is told of the next one after that, and Run waits for it.
func TestALeaderThatIsSeenMeanwhileIsToldAndRunWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, gate, told := electiontest.NewStore(leaseName), make(chan struct{}), make(chan string)
		lec := newConfig(store.Client(), "me", &diary{}, nil)
		lec.Callbacks.OnNewLeader = func(identity string) {
			told <- identity
			<-gate
		}
		elector, err := clientgo.NewLeaderElector(lec)
		if err != nil {
			t.Fatal(err)
		}
		store.Take("first", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); elector.Run(ctx) }()
		if got := <-told; got != "first" {
			t.Errorf("told of %q", got)
		}
		store.Take("second", time.Hour)
		time.Sleep(moment)
		gate <- struct{}{}
		if got := <-told; got != "second" {
			t.Errorf("told of %q", got)
		}
		cancel()
		time.Sleep(lease)
		select {
		case <-over:
			t.Error("Run has returned before OnNewLeader")
		default:
		}
		close(gate)
		<-over
	})
}
