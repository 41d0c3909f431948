package election_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// step is one thing that happens to a shard, and the time that passes after it.
type step struct {
	what    string
	replica int
	request electiontest.Request
	fault   electiontest.Fault
	pause   time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("%s(replica %d, %s, %+v) then %v", s.what, s.replica, s.request, s.fault, s.pause)
}

const replicas = 3

// draw makes a script.
func draw(t *rapid.T) []step {
	fault := rapid.Custom(func(t *rapid.T) electiontest.Fault {
		switch rapid.SampledFrom([]string{"delay", "fail", "lose", "hang"}).Draw(t, "fault") {
		case "delay":
			return electiontest.Fault{Delay: time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond}
		case "fail":
			return electiontest.Fault{Err: errRefused}
		case "lose":
			return electiontest.Fault{LoseReply: true}
		default:
			return electiontest.Fault{Hang: true}
		}
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what: rapid.SampledFrom([]string{
				"take", "renew", "free", "delete", "label", "next", "always", "heal", "hold", "let go", "drop", "restart",
				"seems alive", "seems silent", "seems dead",
			}).Draw(t, "what"),
			replica: rapid.IntRange(0, replicas-1).Draw(t, "replica"),
			request: rapid.SampledFrom([]electiontest.Request{
				electiontest.List, electiontest.Watch, electiontest.Create, electiontest.Update,
			}).Draw(t, "request"),
			fault: fault.Draw(t, "fault"),
			pause: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "pause")) * time.Millisecond,
		}
	}), 1, 30).Draw(t, "script")
}

// shard is several replicas on one store, and a judge of what they do.
type shard struct {
	t        *testing.T
	store    *electiontest.Store
	replicas [replicas]*replica
	network  *network
	peers    [replicas]*peer
	mode     election.Detection
	fenced   bool
	slow     time.Duration          // how long the work takes to stop
	active   [replicas]atomic.Int32 // terms whose work has not been joined
	broken   atomic.Value           // string: the first promise that was broken
}

func (s *shard) complain(format string, args ...any) {
	s.broken.CompareAndSwap(nil, fmt.Sprintf(format, args...))
}

func (s *shard) start(i int) {
	s.peers[i] = s.network.join(fmt.Sprint(i))
	s.replicas[i] = start(s.t, s.store, func(ctx context.Context, _ election.Term) error {
		if n := s.active[i].Add(1); n != 1 {
			s.complain("%d terms at once in replica %d", n, i)
		}
		defer s.active[i].Add(-1)
		<-ctx.Done()
		time.Sleep(s.slow)
		return nil
	}, seen(s.peers[i], s.mode, s.fenced))
}

func (s *shard) do(step step) {
	r := s.replicas[step.replica]
	switch step.what {
	case "take":
		s.store.Take("foreign", lease)
	case "renew":
		if s.store.Holder() == "foreign" {
			s.store.Renew()
		}
	case "free":
		s.store.Free()
	case "delete":
		s.store.Delete()
	case "label":
		s.store.Edit(label)
	case "next":
		r.client.Next(step.request, step.fault)
	case "always":
		r.client.Always(step.fault)
	case "heal":
		r.client.Always(electiontest.Fault{})
	case "hold", "let go":
		r.client.HoldWatches(step.what == "hold")
	case "drop":
		r.client.DropWatches()
	case "seems alive":
		s.peers[step.replica].seem(election.Alive)
	case "seems silent":
		s.peers[step.replica].seem(election.Silent)
	case "seems dead":
		s.peers[step.replica].seem(election.Dead)
	case "restart":
		r.stop()
		s.judge(r)
		s.start(step.replica)
	}
	time.Sleep(step.pause)
}

// judge holds a replica's record against the store's history.
func (s *shard) judge(r *replica) {
	for i, term := range r.all() {
		if i > 0 && term.Epoch() <= r.terms[i-1].Epoch() {
			s.complain("epoch %d after %d in one process", term.Epoch(), r.terms[i-1].Epoch())
		}
		renewed := term.began
		for _, change := range s.store.History() {
			if change.Holder() == term.Token().Holder && change.Lease.UID == term.Token().UID && change.Epoch() == term.Epoch() {
				renewed = change.At
			}
		}
		if !term.joined.IsZero() && term.joined.Sub(renewed) > lease {
			s.complain("epoch %d was joined %v after its last write, past its lease", term.Epoch(), term.joined.Sub(renewed))
		}
	}
}

// overlap checks that no two replicas work in terms of one lease at a time, unless the lease was taken by force.
func (s *shard) overlap(forced bool) {
	if forced {
		return
	}
	n := 0
	for i := range s.active {
		n += int(s.active[i].Load())
	}
	if n > 1 {
		s.complain("%d replicas work at once although nobody took the lease by force", n)
	}
}

// I1, in any sequence of faults: at most one term is active in a process; work never outlives its lease; replicas that
// nobody interferes with never work at the same time, but where the fence allows for it (whatever seems dead or silent); and once the faults are over, one leads.
func TestInAnySequenceOfFaultsATermIsAloneAndSomebodyLeadsInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := draw(rt)
		slow := time.Duration(rapid.IntRange(0, int(drain/time.Millisecond)-1).Draw(rt, "slow")) * time.Millisecond
		fenced := rapid.Bool().Draw(rt, "fenced")
		mode := election.DetectCrash
		if fenced {
			mode = rapid.SampledFrom(election.DetectionModes).Draw(rt, "mode")
		}
		var broken any
		synctest.Test(t, func(t *testing.T) {
			s := &shard{t: t, store: electiontest.NewStore(leaseName), slow: slow, network: newNetwork(), mode: mode, fenced: fenced}
			if fenced {
				s.store.Fence()
			}
			for i := range replicas {
				s.start(i)
			}
			forced := false
			for _, step := range script {
				forced = forced || step.what == "take" || step.what == "free" || step.what == "delete" ||
					fenced && (step.what == "seems silent" || step.what == "seems dead") // not so, and taken for true
				s.do(step)
				synctest.Wait()
				s.overlap(forced)
			}
			for i, r := range s.replicas {
				s.peers[i].seem(election.Alive)
				r.client.Always(electiontest.Fault{})
				r.client.HoldWatches(false)
			}
			time.Sleep(2*time.Minute + 2*lease) // queued faults, back-off, and an expiry
			led := 0
			for _, r := range s.replicas {
				if _, leads := r.leading(); leads {
					led++
				}
			}
			if led != 1 {
				s.complain("%d replicas lead after all faults are over", led)
			}
			for _, r := range s.replicas {
				r.stop()
				s.judge(r)
				r.client.Wait()
			}
			broken = s.broken.Load()
		})
		if broken != nil {
			rt.Fatalf("%v", broken)
		}
	})
}
