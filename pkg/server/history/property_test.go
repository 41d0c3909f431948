package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/server/status"
)

// deed is what happens to a shard, and how long nothing happens after it.
type deed struct {
	What    string
	Replica int
	Pause   time.Duration
}

var deeds = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
	return deed{
		What:    rapid.SampledFrom([]string{"wait", "steal", "clear", "delete", "cut", "heal", "step down", "restart", "kill"}).Draw(t, "what"),
		Replica: rapid.IntRange(0, 1).Draw(t, "replica"),
		Pause:   time.Duration(rapid.IntRange(0, 30_000).Draw(t, "ms")) * time.Millisecond,
	}
}), 1, 15)

// shard is a Lease and a book, both in memory, and two replicas.
type shard struct {
	t     *testing.T
	store *electiontest.Store
	// late is how long after its beginning a term writes. A term that ends before that writes at its end.
	late time.Duration

	mu      sync.Mutex
	pages   pages
	written map[string]int // entries by holder
}

// replica is one life of a replica.
type replica struct {
	name    string
	client  *electiontest.Client
	elector *election.Elector
	cut     atomic.Bool
	stop    func()
}

func (s *shard) start(name string) *replica {
	r := &replica{name: name, client: s.store.Client()}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Cluster = "kube-system", "regent-controllers", "system:admin"
	cfg.Replica, cfg.Client = name, r.client
	var err error
	if r.elector, err = election.New(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), logr.Discard()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.elector.Run(ctx, func(ctx context.Context, term election.Term) error {
			select {
			case <-time.After(s.late):
				s.write(r, term)
				<-ctx.Done()
			case <-ctx.Done():
				s.write(r, term)
			}
			return nil
		})
	}()
	r.stop = func() {
		cancel()
		<-ended
		r.client.Wait()
	}
	return r
}

// write adds a term's entry unless the term is over, as the fence does, or the replica is cut off.
func (s *shard) write(r *replica, term election.Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, token := s.store.Lease(), term.Token()
	if r.cut.Load() || lease == nil || lease.UID != token.UID || *lease.Spec.HolderIdentity != token.Holder || int64(*lease.Spec.LeaseTransitions) != token.Epoch {
		return
	}
	if s.pages.add(NewEntry(0, term, r.name, r.elector.Status().Past, nil)) {
		s.written[token.Holder]++
	}
}

func (r *replica) cutOff(so bool) {
	r.cut.Store(so)
	fault := electiontest.Fault{}
	if so {
		fault.Err = errors.New("cut off")
	}
	r.client.Always(fault)
}

func (s *shard) entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages.entries()
}

// truth returns the terms that the Lease has shown, the oldest first, and when each was first seen not to go on.
func (s *shard) truth() (terms []status.Term) {
	for _, change := range s.store.History() {
		holder, epoch := change.Holder(), change.Epoch()
		if change.Type == "DELETED" {
			holder = ""
		}
		if n := len(terms) - 1; n >= 0 && terms[n].Ended.IsZero() && (terms[n].Holder != holder || terms[n].Epoch != epoch) {
			terms[n].Ended = change.At
		}
		if n := len(terms) - 1; holder != "" && (n < 0 || terms[n].Holder != holder || terms[n].Epoch != epoch) {
			terms = append(terms, status.Term{Holder: holder, Epoch: epoch, Began: change.At})
		}
	}
	return terms
}

// judge returns how the history contradicts the truth, as seen by a replica; empty if it does not.
func (s *shard) judge(told []status.Term) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	truth := s.truth()
	left := truth
	direct := map[int]bool{} // the terms that are told, by their index
	for n := len(told) - 1; n >= 0; n-- {
		one, at := told[n], -1
		for i := range left {
			if left[i].Is(one) {
				at = i
			}
		}
		if at < 0 {
			return fmt.Sprintf("term %d of %q is told where there was none", one.Epoch, one.Holder)
		}
		was := left[at]
		direct[len(truth)-len(left)+at] = true
		left = left[at+1:]
		const slack = 5 * time.Second // what a retry period and a request need until somebody sees it
		switch {
		case !one.Began.IsZero() && one.Began.Sub(was.Began).Abs() > slack:
			return fmt.Sprintf("term %d began %v, is told to have begun %v", one.Epoch, was.Began, one.Began)
		case !one.Ended.IsZero() && one.Ended.Before(one.Began):
			return fmt.Sprintf("term %d is told to have ended before it began", one.Epoch)
		case !one.Ended.IsZero() && was.Ended.IsZero():
			return fmt.Sprintf("term %d goes on, and is told to have ended", one.Epoch)
		case !one.Ended.IsZero() && n > 0 && !told[n-1].Began.IsZero() && one.Ended.After(told[n-1].Began):
			return fmt.Sprintf("term %d is told to have ended after the next began: %+v", one.Epoch, told)
		}
	}
	for n, one := range truth {
		switch wrote := s.written[one.Holder]; {
		case wrote > 1:
			return fmt.Sprintf("term %d has written %d times", one.Epoch, wrote)
		case wrote == 1 && !direct[n]:
			return fmt.Sprintf("term %d has written, and is not told", one.Epoch)
		}
	}
	return ""
}

// Whatever ends terms, and whoever writes when: what is told was so, in that order, and what was written is told.
func TestTheHistoryContradictsNothingThatWas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		done, late := deeds.Draw(rt, "deeds"), time.Duration(rapid.IntRange(0, 10_000).Draw(rt, "late"))*time.Millisecond
		var broken string
		synctest.Test(t, func(t *testing.T) { broken = play(t, done, late) })
		if broken != "" {
			rt.Fatal(broken)
		}
	})
}

func play(t *testing.T, done []deed, late time.Duration) string {
	t.Helper()
	s := &shard{t: t, store: electiontest.NewStore("regent-controllers"), late: late, pages: pages{}, written: map[string]int{}}
	replicas := []*replica{s.start("a"), s.start("b")}
	var killed []*replica
	var broken string
	for n, d := range done {
		if broken != "" {
			break
		}
		r := replicas[d.Replica]
		switch d.What {
		case "steal":
			s.store.Take(fmt.Sprintf("stranger-%d", n), 5*time.Second)
		case "clear":
			s.store.Free()
		case "delete":
			s.store.Delete()
		case "cut":
			r.cutOff(true)
		case "heal":
			r.cutOff(false)
		case "step down":
			_, _ = r.elector.StepDown("told to", "")
		case "restart":
			r.stop()
			replicas[d.Replica] = s.start(r.name)
		case "kill": // for the others: it is never heard again
			r.cutOff(true)
			killed = append(killed, r)
			replicas[d.Replica] = s.start(fmt.Sprintf("%s%d", r.name, n))
		}
		time.Sleep(d.Pause)
		synctest.Wait() // what is told and what was written are of one moment
		for _, r := range replicas {
			if b := s.judge(Terms(s.entries(), Now(0, r.elector.Status()))); b != "" {
				broken = fmt.Sprintf("after %q, %s: %s", d.What, r.name, b)
			}
		}
	}
	for _, r := range replicas {
		r.cutOff(false)
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	for _, r := range replicas {
		if broken != "" {
			break
		}
		terms := Terms(s.entries(), Now(0, r.elector.Status()))
		broken = s.judge(terms)
		if now := s.store.Lease(); len(terms) == 0 || terms[0].Holder != *now.Spec.HolderIdentity || !terms[0].Ended.IsZero() {
			broken = fmt.Sprintf("%s does not tell who leads: %+v", r.name, terms)
		}
	}
	for _, r := range append(replicas, killed...) {
		r.stop()
	}
	return broken
}
