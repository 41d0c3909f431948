package election_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// called gives a process the name of a replica. Others reach it, and know it from others of that name, by process.
func called(replica, process string, network *network) func(*election.Config) {
	detected := detectBy(network.join(process), "", true)
	return func(cfg *election.Config) {
		detected(cfg)
		cfg.Replica, cfg.Instance = replica, process
	}
}

func prefers(priority int32) func(*election.Config) {
	return func(cfg *election.Config) { cfg.Priority, cfg.Preempt = priority, true }
}

// A unit file that was copied gives two processes one name. Both follow the leader, and a step down to that name has
// one of them lead.
func TestTwoStandbysOfOneNameAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		store.Fence()
		leader := start(t, store, nil, called("a", "a_1", network))
		leader.mustLead()
		twins := []*replica{start(t, store, nil, called("b", "b_1", network)), start(t, store, nil, called("b", "b_2", network))}
		time.Sleep(retry)
		follow := []string{}
		for _, s := range leader.elector.Status().Standbys {
			follow = append(follow, s.Replica+" "+s.Instance)
		}
		if want := []string{"b b_1", "b b_2"}; !slices.Equal(follow, want) {
			t.Errorf("%q follow, want %q", follow, want)
		}
		if _, err := leader.elector.StepDown("", "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retry / 8) // no standby leaves the lease to the other one
		for n, twin := range twins {
			now, want := twin.elector.Status(), []string{"b_1", "b_2"}[n]
			if led := len(twin.all()) == 1; led != (now.LeaderInstance == want) || now.Leader != "b" || now.Epoch != 2 {
				t.Errorf("%s has led: %t, and sees %q lead in epoch %d", want, led, now.LeaderInstance, now.Epoch)
			}
		}
		for _, r := range append(twins, leader) {
			r.stop()
		}
	})
}

// A leader does not take another process of its name for itself.
func TestALeaderStepsDownForABetterOneOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		store.Fence()
		leader := start(t, store, nil, called("a", "a_1", network))
		leader.mustLead()
		if _, err := leader.elector.StepDown("", "a"); !errors.Is(err, election.ErrLeadsAlready) {
			t.Errorf("asked to hand over to its own name it says %v", err)
		}
		better := start(t, store, nil, called("a", "a_2", network), prefers(2))
		time.Sleep(2 * lease)
		better.mustLead()
		leader.mustEnd(0, election.StepDown)
		if now := leader.elector.Status(); now.Leader != "a" || now.LeaderInstance != "a_2" || !strings.HasPrefix(now.Holder, "a_") {
			t.Errorf("the other one sees %+v", now)
		}
		better.stop()
		leader.stop()
	})
}

// A replica whose process is dead is started anew, and leads. Whoever forgets the dead one again, or by the name of the
// replica, takes nothing from the one that lives.
func TestWhoIsForgottenIsAProcessAndNoReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		store.Fence()
		crash := func(cfg *election.Config) { cfg.Detection, cfg.ForgetCommand = election.DetectCrash, "forget" }
		dead := start(t, store, nil, called("a", "a_1", network), forLife, crash)
		dead.mustLead()
		told := &noticed{}
		anew := start(t, store, nil, called("a", "a_2", network), forLife, crash, told.on)
		time.Sleep(lease)
		dead.client.Always(electiontest.Fault{Hang: true})
		dead.client.HoldWatches(true)
		network.peers["a_1"].seem(election.Silent)
		time.Sleep(long)
		if messages := told.of(election.Unaccounted); len(messages) != 1 || !strings.HasSuffix(messages[0], ": forget a_1") || !strings.Contains(messages[0], "replica a holds") {
			t.Errorf("an operator reads %q", messages)
		}
		forget := func(process string) error { return election.Forget(t.Context(), anew.client, process) }
		if err := forget("a"); !errors.Is(err, election.ErrNoReplica) || !strings.Contains(err.Error(), `["a_1" "a_2"]`) {
			t.Errorf("by the replica's name: %v", err)
		}
		if terms := anew.all(); len(terms) != 0 {
			t.Fatalf("it leads beside the other one: %v", terms)
		}
		if err := forget("a_1"); err != nil {
			t.Fatal(err)
		}
		anew.mustLead()
		for _, again := range []string{"a_1", "a"} {
			if err := forget(again); !errors.Is(err, election.ErrNoReplica) {
				t.Errorf("%s again: %v", again, err)
			}
		}
		time.Sleep(long)
		if terms := anew.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
			t.Errorf("its terms are %v", terms)
		}
		dead.client.Always(electiontest.Fault{})
		dead.client.HoldWatches(false)
		anew.stop()
		dead.stop()
	})
}
