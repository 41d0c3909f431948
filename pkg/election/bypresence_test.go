package election_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

var byPresence = inMode(election.ByPresence{})

// party is the replicas of one process: one presence, and an Elector for each of several Leases.
type party struct {
	*election.Presence
	t       *testing.T
	client  *electiontest.Client
	members []*replica
	leave   context.CancelFunc
	left    chan struct{}
}

// startParty starts a process that would lead under each of the Leases of those stores. Each term does work.
func startParty(t *testing.T, store *electiontest.Store, names []string, work election.LeadFunc, change ...func(*election.Config)) *party {
	t.Helper()
	p := &party{t: t, client: store.Client(), left: make(chan struct{})}
	cfg := newConfig(p.client)
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if p.Presence, err = election.NewPresence(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.leave = cancel
	go func() {
		defer close(p.left)
		p.Run(ctx)
	}()
	for _, name := range names {
		r := &replica{t: t, client: p.client, result: make(chan error, 1)}
		cfg.Name, cfg.Mode = name, election.ByPresence{Presence: p.Presence}
		r.begin(election.New, cfg, work)
		p.members = append(p.members, r)
	}
	return p
}

// stop ends the terms, and then the presence.
func (p *party) stop() {
	p.t.Helper()
	for _, r := range p.members {
		r.cancel(errDone)
	}
	for _, r := range p.members {
		if err := <-r.result; err != errDone {
			p.t.Errorf("Run returned %v", err)
		}
	}
	p.leave()
	<-p.left
}

// leading returns how many of the Leases the process leads under.
func (p *party) leading() (n int) {
	for _, r := range p.members {
		if _, ok := r.leading(); ok {
			n++
		}
	}
	return n
}

// leaseNames returns so many names of Leases; the first is that of the store.
func leaseNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", leaseName, i))
	}
	names[0] = leaseName
	return names
}

// Whoever asks, holder or standby, is told when the presence was renewed.
func TestTheStatusTellsOfThePresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		a := start(t, store, nil, byPresence)
		defer a.stop()
		a.mustLead()
		b := start(t, store, nil, byPresence)
		defer b.stop()
		time.Sleep(2 * lease)
		for _, r := range []*replica{a, b} {
			s := r.elector.Status()
			if since := time.Since(s.Renewed); since > jitteredRetry || s.Duration != lease || s.Leaderless != 0 || s.CannotStand != "" {
				t.Errorf("renewed %v ago for %v, without a leader for %v, cannot stand: %q", since, s.Duration, s.Leaderless, s.CannotStand)
			}
		}
	})
}

// A presence is no leader: the metrics tell of the lease alone, however many processes there have been.
func TestThereAreNoMetricsOfAPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil, byPresence)
		r.mustLead()
		before := metric(t, "leader_election_slowpath_total")
		// the next renewal has to read first
		r.client.Next(electiontest.Update, electiontest.Fault{Err: errRefused})
		time.Sleep(lease)
		if leads, slow := gauge(t), metric(t, "leader_election_slowpath_total")-before; leads != 1 || slow != 1 {
			t.Errorf("leads: %v, renewals that had to read first: %v", leads, slow)
		}
		for _, name := range append(store.Others(), leaseName+"-presence") {
			if n := seriestest.Count("name", name); n != 0 {
				t.Errorf("%d series of %s", n, name)
			}
		}
		r.stop()
	})
}

// jitteredRetry is the longest time between two renewals.
const jitteredRetry = retry * 12 / 10

// Renewals do not grow with the number of leases, and neither do the objects that a process leaves: none.
func TestAPresenceIsRenewedForAnyNumberOfLeases(t *testing.T) {
	written := map[int]int{}
	for _, n := range []int{1, 20} {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			p := startParty(t, store, leaseNames(n), nil)
			time.Sleep(moment)
			if led := p.leading(); led != n {
				t.Fatalf("leads under %d leases of %d", led, n)
			}
			before := p.client.Count(electiontest.Update)
			time.Sleep(10 * lease)
			written[n] = p.client.Count(electiontest.Update) - before
			if led := p.leading(); led != n {
				t.Errorf("leads under %d leases of %d", led, n)
			}
			for _, name := range leaseNames(n) {
				if history := store.Of(name).History(); len(history) != 1 || history[0].Lease.Spec.RenewTime != nil {
					t.Errorf("%s was written %d times", name, len(history))
				}
			}
			p.stop()
			if left := store.Others(); slices.ContainsFunc(left, func(name string) bool { return !slices.Contains(leaseNames(n), name) }) {
				t.Errorf("these Leases are left: %q", left)
			}
			if store.Holder() != "" {
				t.Errorf("held by %q", store.Holder())
			}
		})
	}
	if most := int(10*lease/retry) + 1; written[1] == 0 || written[1] > most || written[20] != written[1] {
		t.Errorf("renewals for 1 and 20 leases: %v, want the same, and at most %d", written, most)
	}
}

// A process that cannot renew its presence ends all its terms, in time for others, and leads again when it can.
func TestAProcessThatCannotRenewItsPresenceEndsAllItsTermsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		store := electiontest.NewStore(leaseName)
		p := startParty(t, store, leaseNames(n), nil)
		time.Sleep(moment)
		p.client.Always(electiontest.Fault{Hang: true})
		time.Sleep(lease)
		last := time.Time{}
		for _, change := range store.Of(ownerOf(t, store).Name).History() {
			last = change.At
		}
		for _, r := range p.members {
			if ended := r.mustEnd(0, election.RenewDeadline); ended.joined.Sub(last) > lease-drain {
				t.Errorf("a term lasted for %v after the last renewal", ended.joined.Sub(last))
			}
		}
		other := startParty(t, store, leaseNames(n), nil)
		time.Sleep(lease + moment)
		if led := other.leading(); led != n {
			t.Errorf("another leads under %d of %d leases whose presence has expired", led, n)
		}
		other.stop()
		p.client.Always(electiontest.Fault{})
		time.Sleep(lease)
		if led := p.leading(); led != n {
			t.Errorf("leads under %d leases of %d when it can renew again", led, n)
		}
		p.stop()
		p.client.Wait()
	})
}

// A renewal of the presence does not change the Lease, so a standby whose watch lags has to find out in another way.
func TestAHolderThatRenewsIsNotSucceededByAStandbyWhoseWatchLags(t *testing.T) {
	for _, standby := range election.Modes {
		t.Run(string(standby.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				leader := start(t, store, nil, byPresence)
				leader.mustLead()
				other := start(t, store, nil, inMode(standby))
				time.Sleep(lease)
				other.client.HoldWatches(true)
				time.Sleep(59 * time.Second) // a read finds it out after a minute
				if terms := leader.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
					t.Errorf("the terms of the leader are %v", terms)
				}
				if terms := other.all(); len(terms) != 0 {
					t.Errorf("the standby has led: %v", terms)
				}
				if cannot := other.elector.Status().CannotWrite; cannot != "" {
					t.Errorf("its status says that it cannot write: %s", cannot)
				}
				other.client.HoldWatches(false)
				other.stop()
				leader.stop()
			})
		})
	}
}

// Whoever deletes the presence declares the process dead: all its terms end, and others lead at once.
func TestDeletingAPresenceFreesWhatItKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		store := electiontest.NewStore(leaseName)
		p := startParty(t, store, leaseNames(n), nil)
		time.Sleep(moment)
		other := startParty(t, store, leaseNames(n), nil)
		defer other.stop()
		time.Sleep(moment)
		store.Of(ownerOf(t, store).Name).Delete()
		time.Sleep(moment)
		for _, r := range p.members {
			r.mustEnd(0, election.Deposed)
		}
		if led := p.leading() + other.leading(); led != n {
			t.Errorf("%d terms of %d leases", led, n)
		}
		p.stop()
		time.Sleep(moment)
		if led := other.leading(); led != n {
			t.Errorf("the other leads under %d leases of %d", led, n)
		}
	})
}

// I17: work that does not stop costs its own lease, after as long as one that is renewed would last, and no other.
func TestWorkThatDoesNotStopCostsItsOwnLeaseOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		hung := make(chan struct{})
		wake := sync.OnceFunc(func() { close(hung) })
		p := startParty(t, store, leaseNames(2), func(ctx context.Context, term election.Term) error {
			<-ctx.Done()
			if term.Token().Name == leaseName && term.Epoch() == 1 {
				<-hung
			}
			return nil
		})
		defer p.stop()
		defer wake()
		time.Sleep(moment)
		other := startParty(t, store, leaseNames(1), nil)
		defer other.stop()
		time.Sleep(moment)
		if _, err := p.members[0].elector.StepDown("told to", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drain + lease - moment)
		if store.Holder() == "" || other.leading() != 0 {
			t.Errorf("the lease was given up early: %q", store.Holder())
		}
		time.Sleep(2 * moment)
		if other.leading() != 1 {
			t.Errorf("nobody leads after the lease would have expired; held by %q", store.Holder())
		}
		if terms := p.members[1].all(); len(terms) != 1 || !terms[0].ended.IsZero() {
			t.Errorf("terms of the other lease: %v", terms)
		}
		wake()
		time.Sleep(lease)
		if state := p.members[0].elector.Status().State; state != "standing by" {
			t.Errorf("when the work has stopped it is %q", state)
		}
	})
}

// What a process has left that was killed is deleted by another, and that of one which renews is not.
func TestThePresenceOfAProcessThatIsGoneIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		killed := start(t, store, nil, byPresence)
		killed.mustLead()
		dead := ownerOf(t, store).Name
		killed.client.Always(electiontest.Fault{Hang: true})
		other := start(t, store, nil, byPresence)
		time.Sleep(2 * lease)
		if _, ok := other.leading(); !ok {
			t.Fatal("nobody leads")
		}
		living := ownerOf(t, store).Name
		time.Sleep(20 * lease)
		if left := store.Others(); !slices.Equal(left, []string{living}) {
			t.Errorf("there are %q, want %q; that of the dead was %q", left, living, dead)
		}
		killed.client.Always(electiontest.Fault{})
		killed.stop()
		other.stop()
		killed.client.Wait()
	})
}

// Terms of any number leave nothing behind that the first has not, whether one ends or all do.
func TestHundredsOfTermsByPresenceLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, times = 4, 100
		store := electiontest.NewStore(leaseName)
		p := startParty(t, store, leaseNames(n), nil)
		var first int
		for i := range times {
			time.Sleep(4 * retry) // a stranger renews, so replicas of that mode have a head start
			if led := p.leading(); led != n {
				t.Fatalf("leads under %d leases of %d after %d losses", led, n, i)
			}
			if i == 1 {
				first = runtime.NumGoroutine()
			}
			if i%2 == 0 {
				store.Of(leaseNames(n)[i%n]).Take("foreign", lease)
				time.Sleep(moment)
				store.Of(leaseNames(n)[i%n]).Free()
			} else {
				store.Of(ownerOf(t, store).Name).Delete()
			}
		}
		time.Sleep(4 * retry)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > first+2 {
			t.Errorf("%d goroutines, %d after the first losses", after, first)
		}
		p.stop()
	})
}

// Nobody need find out whether a process lives that leads: it is this one.
func TestAProcessKnowsItselfUnderAnyNumberOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		store, probe := electiontest.NewStore(leaseName), newNetwork().join("a")
		p := startParty(t, store, leaseNames(n), nil, detectBy(probe, election.DetectCrash, false))
		time.Sleep(lease)
		if led := p.leading(); led != n {
			t.Errorf("leads under %d leases of %d", led, n)
		}
		if followers := probe.Followers(); len(followers) > 0 {
			t.Errorf("it follows itself: %+v", followers)
		}
		p.stop()
	})
}

// I6: a presence is not given up while work of a term that it keeps goes on, even if the store takes writes again.
func TestAPresenceIsNotGivenUpBeforeTheWorkOfItsTermsHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		p := startParty(t, store, leaseNames(2), func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(drain - time.Second)
			return nil
		})
		defer p.stop()
		time.Sleep(moment)
		other := startParty(t, store, leaseNames(2), nil)
		defer other.stop()
		time.Sleep(moment)
		p.client.Always(electiontest.Fault{Err: errRefused})
		for range 100 {
			time.Sleep(moment)
			if terms := p.members[0].all(); !terms[0].ended.IsZero() {
				break
			}
		}
		p.client.Always(electiontest.Fault{})
		time.Sleep(lease)
		for i, r := range p.members {
			ended := r.mustEnd(0, election.RenewDeadline)
			if terms := other.members[i].all(); len(terms) > 0 && terms[0].began.Before(ended.joined) {
				t.Errorf("work of one process goes on until %v, and another leads in %v", ended.joined, terms)
			}
		}
	})
}

// A standby believes the presence how long it lasts, as it does a lease that is renewed.
func TestAPresenceThatLastsLongerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		p := startParty(t, store, leaseNames(1), nil, func(cfg *election.Config) { cfg.LeaseDuration = 3 * lease })
		time.Sleep(moment)
		other := start(t, store, nil, byPresence)
		defer other.stop()
		time.Sleep(lease)
		p.client.Always(electiontest.Fault{Err: errRefused})
		time.Sleep(2*lease + drain)
		if terms := other.all(); len(terms) != 0 {
			t.Errorf("a standby leads before the presence has expired: %v", terms)
		}
		time.Sleep(lease)
		if _, ok := other.leading(); !ok {
			t.Error("nobody leads after the presence has expired")
		}
		p.client.Always(electiontest.Fault{})
		p.stop()
	})
}

// A process that alone cannot renew makes way before its presence expires: one question for all its leases.
func TestAProcessThatAloneCannotRenewMakesWayWithAllItsTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		store, network := electiontest.NewStore(leaseName), newNetwork()
		p := startParty(t, store, leaseNames(n), nil, detectBy(network.join("a"), election.DetectCrash, false))
		defer p.stop()
		time.Sleep(moment)
		other := startParty(t, store, leaseNames(n), nil, detectBy(network.join("b"), election.DetectCrash, false))
		defer other.stop()
		time.Sleep(lease)
		p.client.Always(electiontest.Fault{Err: errRefused})
		time.Sleep(4 * retry)
		for _, r := range p.members {
			r.mustEnd(0, election.RenewDeadline)
		}
		if led := other.leading(); led != n {
			t.Errorf("the other leads under %d leases of %d", led, n)
		}
		p.client.Always(electiontest.Fault{})
	})
}

// I17: that one lease could not be released says nothing of the other terms of its process.
func TestALeaseThatCannotBeReleasedEndsNoOtherTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := electiontest.NewStore(leaseName), newNetwork()
		p := startParty(t, store, leaseNames(2), nil, detectBy(network.join("a"), election.DetectCrash, false))
		defer p.stop()
		time.Sleep(moment)
		other := startParty(t, store, leaseNames(2), nil, detectBy(network.join("b"), election.DetectCrash, false))
		defer other.stop()
		time.Sleep(moment)
		if _, err := p.members[0].elector.StepDown("told to", ""); err != nil {
			t.Fatal(err)
		}
		for _, client := range []*electiontest.Client{p.client, other.client} {
			client.Always(electiontest.Fault{Err: errRefused})
		}
		time.Sleep(renew/2 + retry/2) // as long as a release is tried
		for _, client := range []*electiontest.Client{p.client, other.client} {
			client.Always(electiontest.Fault{})
		}
		time.Sleep(lease)
		if terms := p.members[1].all(); len(terms) != 1 || !terms[0].ended.IsZero() {
			t.Errorf("terms under the other lease: %v", terms)
		}
		if led := p.leading() + other.leading(); led != 2 {
			t.Errorf("%d terms under 2 leases", led)
		}
	})
}
