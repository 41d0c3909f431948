package election_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
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
		switch rapid.SampledFrom([]string{"delay", "answer late", "fail", "lose", "hang"}).Draw(t, "fault") {
		case "delay":
			return electiontest.Fault{Delay: time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond}
		case "answer late":
			return electiontest.Fault{AnswerDelay: time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond}
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
				"restart in another mode", "forget",
				"seems alive", "seems silent", "seems dead",
			}).Draw(t, "what"),
			replica: rapid.IntRange(0, replicas-1).Draw(t, "replica"),
			request: rapid.SampledFrom([]electiontest.Request{
				electiontest.List, electiontest.Watch, electiontest.Create, electiontest.Update, electiontest.Delete,
			}).Draw(t, "request"),
			fault: fault.Draw(t, "fault"),
			pause: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "pause")) * time.Millisecond,
		}
	}), 1, 30).Draw(t, "script")
}

// shard is several replicas on one store, and checks what they do.
type shard struct {
	t        *testing.T
	store    *electiontest.Store
	replicas [replicas]*replica
	network  *network
	peers    [replicas]*peer
	detect   election.Detection
	modes    [replicas]election.Mode
	ranks    [replicas]int32
	fenced   bool
	accepts  [replicas]bool         // succession without a fence
	slow     time.Duration          // how long the work takes to stop
	active   [replicas]atomic.Int32 // terms whose work has not been joined
	terms    atomic.Int32
	excused  atomic.Int64 // until then, in Unix ns, two may work at once: the lease was taken by force
	broken   atomic.Value // string: the first promise that was broken
}

// aftermath is how long two may work at once after a theft. A leader that does not hear of it works until it cannot
// have renewed in time, and stops by the end of its lease.
const aftermath = 2*lease + drain

// forever is the excuse while somebody lies, or where nothing expires.
const forever = math.MaxInt64

// excuse lets two work at once for a while from now on.
func (s *shard) excuse() {
	if s.excused.Load() != forever {
		s.excused.Store(time.Now().Add(aftermath).UnixNano())
	}
}

// mostTerms is more than the steps of a script can cause.
const mostTerms = 200

func (s *shard) complain(format string, args ...any) {
	s.broken.CompareAndSwap(nil, fmt.Sprintf(format, args...))
}

func (s *shard) start(i int) {
	s.peers[i] = s.network.join(fmt.Sprint(i))
	s.replicas[i] = start(s.t, s.store, func(ctx context.Context, _ election.Term) error {
		if n := s.active[i].Add(1); n != 1 {
			s.complain("%d terms at once in replica %d", n, i)
		}
		s.overlap()
		defer s.active[i].Add(-1)
		if s.terms.Add(1) > mostTerms {
			s.complain("more than %d terms: the lease flaps", mostTerms)
			time.Sleep(lease) // let the clock go on, or this would never end
		}
		<-ctx.Done()
		time.Sleep(s.slow)
		return nil
	}, detectBy(s.peers[i], s.detect, s.fenced), inMode(s.modes[i]), func(cfg *election.Config) {
		if !cfg.Mode.Expires() { // it has no other
			cfg.Detection = election.DetectCrash
		}
		cfg.SucceedUnfenced = s.accepts[i] && cfg.Mode.Expires()
		if !cfg.Mode.Electing() && cfg.Detection != election.DetectOff {
			cfg.Priority = s.ranks[i]
		}
	})
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
	case "forget":
		s.forget()
	case "restart", "restart in another mode":
		r.stop()
		s.judge(r)
		if step.what != "restart" {
			i := slices.Index(election.Modes, s.modes[step.replica])
			s.modes[step.replica] = election.Modes[(i+1)%len(election.Modes)]
		}
		s.start(step.replica)
	}
	time.Sleep(step.pause)
}

// forget deletes the object that stands for the holder's life, if the lease is held for life.
func (s *shard) forget() {
	if lease := s.store.Lease(); lease != nil {
		for _, owner := range lease.OwnerReferences {
			s.store.Of(owner.Name).Delete()
		}
	}
}

// leaders counts the replicas that lead.
func (s *shard) leaders() int {
	n := 0
	for _, r := range s.replicas {
		if _, leads := r.leading(); leads {
			n++
		}
	}
	return n
}

// judge checks a replica's record against the store's history.
func (s *shard) judge(r *replica) {
	for i, term := range r.all() {
		if i > 0 && term.Epoch() <= r.terms[i-1].Epoch() {
			s.complain("epoch %d after %d in one process", term.Epoch(), r.terms[i-1].Epoch())
		}
		renewed, forLife, life := term.began, false, ""
		for _, change := range s.store.History() {
			if change.Holder() == term.Token().Holder && change.Lease.UID == term.Token().UID && change.Epoch() == term.Epoch() {
				renewed, forLife = change.At, change.Lease.Spec.RenewTime == nil
				if forLife && len(change.Lease.OwnerReferences) > 0 {
					life = change.Lease.OwnerReferences[0].Name
				}
			}
		}
		for _, change := range s.store.Of(cmp.Or(life, leaseName)).History() {
			// its presence, which is renewed for it
			if life != "" && change.Holder() == term.Token().Holder {
				renewed, forLife = change.At, false
			}
		}
		if !forLife && !term.joined.IsZero() && term.joined.Sub(renewed) > lease {
			s.complain("epoch %d was joined %v after its last write, past its lease", term.Epoch(), term.joined.Sub(renewed))
		}
	}
}

// overlap checks that no two replicas work at the same time in terms of one lease, unless the lease was taken by force
// a short while ago.
func (s *shard) overlap() {
	if time.Now().UnixNano() <= s.excused.Load() {
		return
	}
	n := 0
	for i := range s.active {
		n += int(s.active[i].Load())
	}
	if n > 1 {
		s.complain("%d replicas work at once although nobody has taken the lease by force for %v", n, aftermath)
	}
}

// I1 for any sequence of faults: at most one term is active in a process. Work never outlives its lease. Replicas with
// which nobody interferes never work at the same time, except where the fence allows it (a leader that seems dead or
// silent), or where both accept it without a fence (a leader that seems dead). Once the faults are over, one replica
// leads. All this holds in any mode, and while replicas change their mode.
func TestInAnySequenceOfFaultsATermIsAloneAndSomebodyLeadsInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := draw(rt)
		slow := time.Duration(rapid.IntRange(0, int(drain/time.Millisecond)-1).Draw(rt, "slow")) * time.Millisecond
		fenced := rapid.Bool().Draw(rt, "fenced")
		var accepts [replicas]bool
		accepting := 0
		var modes [replicas]election.Mode
		var ranks [replicas]int32
		for i := range modes {
			ranks[i] = rapid.Int32Range(0, 2).Draw(rt, "priority")
			if accepts[i] = !fenced && rapid.Bool().Draw(rt, "accepts"); accepts[i] {
				accepting++
			}
			modes[i] = rapid.SampledFrom(election.Modes).Draw(rt, "mode")
		}
		detect := election.DetectCrash
		if fenced {
			detect = rapid.SampledFrom([]election.Detection{election.DetectOff, election.DetectCrash, election.DetectSuspect}).Draw(rt, "detection")
		}
		var broken any
		synctest.Test(t, func(t *testing.T) {
			s := &shard{t: t, store: electiontest.NewStore(leaseName), slow: slow, network: newNetwork(), detect: detect, modes: modes, ranks: ranks, fenced: fenced, accepts: accepts}
			if fenced {
				s.store.Fence()
			}
			for i := range replicas {
				s.start(i)
			}
			lies := [replicas]bool{} // who seems dead or silent, and is not, and it is taken for true
			for _, step := range script {
				accepted := accepts[step.replica] && accepting > 1
				switch {
				case step.what == "take", step.what == "free", step.what == "delete", step.what == "forget":
					if slices.ContainsFunc(s.modes[:], func(m election.Mode) bool { return !m.Expires() }) {
						// a leader that does not hear of it works on for as long as it lives
						s.excused.Store(forever)
					}
					s.excuse()
				case fenced && step.what == "seems silent", (fenced || accepted) && step.what == "seems dead":
					lies[step.replica] = true
				case step.what == "seems alive":
					lies[step.replica] = false
				}
				if slices.Contains(lies[:], true) {
					s.excuse()
				}
				s.do(step)
				synctest.Wait()
				if slices.Contains(lies[:], true) {
					s.excuse()
				}
				s.overlap()
			}
			for i, r := range s.replicas {
				s.peers[i].seem(election.Alive)
				r.client.Always(electiontest.Fault{})
				r.client.HoldWatches(false)
			}
			time.Sleep(2*time.Minute + 2*lease) // queued faults, back-off, and an expiry
			// whoever held the lease for life could not release it when it stopped
			if s.leaders() == 0 {
				s.forget()
				time.Sleep(lease)
			}
			if led := s.leaders(); led != 1 {
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
