package clientgo_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// electors make an elector of client-go, and one of this package.
var electors = map[string]func(leaderelection.LeaderElectionConfig) (elector, error){
	"client-go": func(lec leaderelection.LeaderElectionConfig) (elector, error) {
		return leaderelection.NewLeaderElector(lec)
	},
	"ours": func(lec leaderelection.LeaderElectionConfig) (elector, error) { return clientgo.NewLeaderElector(lec) },
}

// scene is one replica on a store, in the time of a synctest bubble.
type scene struct {
	t       *testing.T
	store   *electiontest.Store
	client  *electiontest.Client
	elector elector
	diary   *diary
	cancel  context.CancelFunc
	over    chan struct{} // closed when Run has returned
}

func newScene(t *testing.T, which string, work func(context.Context)) *scene {
	t.Helper()
	s := &scene{t: t, store: electiontest.NewStore(leaseName), diary: &diary{}}
	s.client = s.store.Client()
	var err error
	if s.elector, err = electors[which](newConfig(s.client, "me", s.diary, work)); err != nil {
		t.Fatal(err)
	}
	return s
}

// run calls Run, for the first time or again.
func (s *scene) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancel, s.over = cancel, make(chan struct{})
	go func() {
		defer close(s.over)
		s.elector.Run(ctx)
	}()
	time.Sleep(moment)
}

func (s *scene) isOver() bool {
	synctest.Wait()
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// What client-go's elector promises, this package's promises, too.
func TestWhatClientGoPromises(t *testing.T) {
	for name, check := range map[string]func(*scene){
		"it leads, and says so": func(s *scene) {
			if s.elector.IsLeader() || s.elector.GetLeader() != "" {
				s.t.Errorf("before Run it says that %q leads", s.elector.GetLeader())
			}
			s.run()
			if !s.elector.IsLeader() || !strings.HasPrefix(s.elector.GetLeader(), "me") {
				s.t.Errorf("leads: %v, leader %q", s.elector.IsLeader(), s.elector.GetLeader())
			}
			for _, want := range []string{"started", "leader me", "event LeaderElection on default/example: me became leader"} {
				if !s.diary.has(want) {
					s.t.Errorf("no %q in %q", want, s.diary.all())
				}
			}
			if labels := s.store.Lease().Labels; labels["app"] != "example" {
				s.t.Errorf("labels %v", labels)
			}
			s.cancel()
		},
		"OnStoppedLeading follows the end": func(s *scene) {
			s.run()
			if s.diary.has("stopped") {
				s.t.Errorf("stopped too early: %q", s.diary.all())
			}
			s.cancel()
			if !s.isOver() || !s.diary.has("stopped") || !s.diary.has("me stopped leading") || s.elector.IsLeader() {
				s.t.Errorf("over %v, leads %v, %q", s.isOver(), s.elector.IsLeader(), s.diary.all())
			}
		},
		"ReleaseOnCancel frees the lease": func(s *scene) {
			s.run()
			s.cancel()
			if !s.isOver() || s.store.Holder() != "" {
				s.t.Errorf("over: %v, held by %q", s.isOver(), s.store.Holder())
			}
			if s.elector.GetLeader() != "" {
				s.t.Errorf("it says that %q leads", s.elector.GetLeader())
			}
		},
		"OnStoppedLeading is called also if it never led": func(s *scene) {
			s.store.Take("other", lease)
			s.run()
			if s.elector.IsLeader() || s.elector.GetLeader() != "other" || !s.diary.has("leader other") {
				s.t.Errorf("leads: %v, leader %q, %q", s.elector.IsLeader(), s.elector.GetLeader(), s.diary.all())
			}
			s.cancel()
			if !s.isOver() || !s.diary.has("stopped") || s.diary.has("started") {
				s.t.Errorf("over: %v, %q", s.isOver(), s.diary.all())
			}
			if s.store.Holder() != "other" {
				s.t.Errorf("the lease is held by %q", s.store.Holder())
			}
		},
		"Run returns when the lease is lost": func(s *scene) {
			s.run()
			s.store.Take("other", time.Hour)
			time.Sleep(lease)
			if !s.isOver() || !s.diary.has("stopped") || s.elector.IsLeader() {
				s.t.Errorf("over: %v, leads: %v, %q", s.isOver(), s.elector.IsLeader(), s.diary.all())
			}
			if s.store.Holder() != "other" {
				s.t.Errorf("the lease is held by %q", s.store.Holder())
			}
		},
		"Run returns when the server does not answer for long": func(s *scene) {
			s.run()
			s.client.Always(electiontest.Fault{Hang: true})
			time.Sleep(2 * lease)
			if !s.isOver() || !s.diary.has("stopped") {
				s.t.Errorf("over: %v, %q", s.isOver(), s.diary.all())
			}
		},
		"a lease that expires is taken": func(s *scene) {
			s.store.Take("other", 5*time.Second)
			s.run()
			time.Sleep(lease + retry)
			if !s.elector.IsLeader() || !s.diary.has("leader me") {
				s.t.Errorf("leads: %v, %q", s.elector.IsLeader(), s.diary.all())
			}
			s.cancel()
		},
		"a healthy elector passes the check": func(s *scene) {
			s.run()
			time.Sleep(10 * lease)
			if err := s.elector.Check(time.Second); err != nil {
				s.t.Error(err)
			}
			s.cancel()
		},
	} {
		for which := range electors {
			t.Run(name+"/"+which, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newScene(t, which, nil)
					check(s)
					s.cancel()
					<-s.over
					s.client.Wait()
				})
			})
		}
	}
}

// If the work returns by itself, the process leads on, as with client-go.
func TestWorkThatReturnsEndsNoTerm(t *testing.T) {
	for which := range electors {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, which, func(context.Context) {})
				s.run()
				time.Sleep(10 * lease)
				if !s.diary.has("returned") || !s.elector.IsLeader() || s.isOver() {
					t.Errorf("leads: %v, over: %v, %q", s.elector.IsLeader(), s.isOver(), s.diary.all())
				}
				s.cancel()
				<-s.over
			})
		})
	}
}

// slow is work that takes 3 s to stop.
func slow(ctx context.Context) {
	<-ctx.Done()
	time.Sleep(3 * time.Second)
}

// What this package adds: Run returns when the work has returned, the lease is released after that, and
// OnStoppedLeading comes last.
func TestTheWorkIsJoinedBeforeTheLeaseIsReleasedAndRunReturns(t *testing.T) {
	for name, end := range map[string]func(*scene){
		"the end of its context": func(s *scene) { s.cancel() },
		"the lease is stolen":    func(s *scene) { s.store.Take("other", lease) },
		"the Lease is deleted":   func(s *scene) { s.store.Delete() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "ours", slow)
				s.run()
				end(s)
				time.Sleep(3*time.Second - moment)
				if s.isOver() || s.diary.has("stopped") || s.elector.IsLeader() {
					t.Errorf("over: %v, leads: %v, %q", s.isOver(), s.elector.IsLeader(), s.diary.all())
				}
				if name == "the end of its context" && s.store.Holder() == "" {
					t.Error("the lease was released while the work went on")
				}
				time.Sleep(2 * moment)
				if !s.isOver() {
					t.Fatalf("Run has not returned: %q", s.diary.all())
				}
				if lines := s.diary.all(); lines[len(lines)-1] != "stopped" || slices.Index(lines, "returned") < 0 {
					t.Errorf("the order was %q", lines)
				}
				s.cancel()
			})
		})
	}
}

// Run can be called again, any number of times: each call leads for one term, and no work outlives it.
func TestRunCanBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "ours", slow)
		const calls = 20
		for range calls {
			s.run()
			if !s.elector.IsLeader() {
				t.Fatalf("does not lead: %q", s.diary.all())
			}
			s.store.Delete()
			<-s.over
		}
		for _, line := range []string{"started", "returned", "stopped"} {
			n := 0
			for _, l := range s.diary.all() {
				if l == line {
					n++
				}
			}
			if n != calls {
				t.Errorf("%d times %q", n, line)
			}
		}
		s.cancel()
	})
}

// Programs that use this package and those that still use client-go compete for one Lease, in a rolling update. At most
// one leads.
func TestItCompetesWithClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		stocks, mine := &diary{}, &diary{}
		stock, err := electors["client-go"](newConfig(store.Client(), "stock", stocks, nil))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := electors["ours"](newConfig(store.Client(), "ours", mine, nil))
		if err != nil {
			t.Fatal(err)
		}
		current, next := stock, ours
		var end func()
		begin := func(e elector) func() {
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); e.Run(ctx) }()
			return func() { cancel(); <-over }
		}
		end = begin(current)
		time.Sleep(moment)
		for range 10 {
			endNext := begin(next)
			time.Sleep(lease)
			if !current.IsLeader() || next.IsLeader() {
				t.Fatalf("first leads: %v, second leads: %v", current.IsLeader(), next.IsLeader())
			}
			end()
			time.Sleep(3 * retry) // client-go tries every retry period, and adds up to 1.2 of it at random
			if current.IsLeader() || !next.IsLeader() {
				t.Fatalf("released; first leads: %v, second leads: %v", current.IsLeader(), next.IsLeader())
			}
			current, next, end = next, current, endNext
		}
		end()
		if !mine.has("leader stock") || !stocks.has("leader ours_") {
			t.Errorf("who leads was told as %q and %q", mine.all(), stocks.all())
		}
	})
}
