package election_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// Whoever elects asks all candidates, and waits seconds for one that does not answer. A fake that drops the candidate of who
// is deposed would hide that nobody else does.
func TestTheCandidateOfADeadLeaderIsWithdrawnByWhoDeposesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := unattended(t), newNetwork()
		store.Fence()
		a, b := network.join("a"), network.join("b")
		first := start(t, store, nil, version("1.1.0"), seen(a, election.DetectCrash, true))
		time.Sleep(moment)
		dead := store.Candidates().Names()[0]
		name(store, dead)
		first.mustLead()
		second := start(t, store, nil, version("1.2.0"), seen(b, election.DetectCrash, true))
		time.Sleep(retry)
		first.client.Always(electiontest.Fault{Hang: true})
		a.seem(election.Dead)
		time.Sleep(moment)
		if holder := store.Holder(); holder != "" {
			t.Errorf("the dead leader is not deposed: %q holds the lease", holder)
		}
		names := store.Candidates().Names()
		if slices.Contains(names, dead) || len(names) != 1 {
			t.Fatalf("candidates %q, the dead one is %q", names, dead)
		}
		name(store, names[0])
		second.mustLead()
		first.client.Always(electiontest.Fault{})
		second.stop()
		first.stop()
	})
}

// In mode coordinated who suspects does not take the lease itself. The count is on the Lease all the same.
func TestADeposedHoldersSuspicionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := unattended(t), newNetwork()
		store.Fence()
		a, b := network.join("a"), network.join("b")
		first := start(t, store, nil, version("1.1.0"), seen(a, election.DetectSuspect, true))
		time.Sleep(moment)
		name(store, store.Candidates().Names()[0])
		first.mustLead()
		second := start(t, store, nil, version("1.2.0"), seen(b, election.DetectSuspect, true))
		time.Sleep(retry)
		first.client.Always(electiontest.Fault{Hang: true})
		a.seem(election.Silent)
		time.Sleep(moment)
		if said := fmt.Sprint(store.Lease().Annotations); store.Holder() != "" || !strings.Contains(said, `"suspicions":1`) {
			t.Errorf("held by %q, the Lease says %s", store.Holder(), said)
		}
		first.client.Always(electiontest.Fault{})
		second.stop()
		first.stop()
	})
}
