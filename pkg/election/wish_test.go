package election_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// Anyone who knows the probe's secret may follow the leader, claim the highest priority, and confirm anything. That
// ends no term, because the Lease has no wish of theirs. A wish on the Lease ends only the term that it names.
func TestAWishIsHeededIfItIsOnTheLeaseOfAReplicaThatFollows(t *testing.T) {
	const heeded = `{"holder":"%s","replica":"ghost","mode":"lease","priority":2147483647}`
	for name, test := range map[string]struct {
		wish    string
		follows bool
		ends    bool
	}{
		"on the Lease, and it follows": {wish: heeded, follows: true, ends: true},
		"none":                         {follows: true},
		"it follows nobody":            {wish: heeded},
		"about another holder":         {wish: strings.Replace(heeded, "%s", "another%.0s", 1), follows: true},
		"about nobody":                 {wish: strings.Replace(heeded, "%s", "%.0s", 1), follows: true},
		"of a replica that is not it":  {wish: strings.Replace(heeded, "ghost", "b", 1), follows: true},
		"of a replica without a name":  {wish: strings.Replace(heeded, "ghost", "", 1), follows: true},
		"of the leader itself":         {wish: strings.Replace(heeded, "ghost", "a", 1), follows: true},
		"of the same priority":         {wish: strings.Replace(heeded, "2147483647", "7", 1), follows: true},
		"of another mode":              {wish: strings.Replace(heeded, "lease", "for-life", 1), follows: true},
		"not to be read":               {wish: `{"holder":"%s"`, follows: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				store.Fence()
				p := network.join("a")
				leader := start(t, store, nil, detectBy(p, election.DetectCrash, true), func(cfg *election.Config) { cfg.Priority = 7 })
				leader.mustLead()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.follows {
					go network.join("ghost").Follow(ctx, p.Contact(), election.Follower{
						Is: election.Standby{Mode: election.Renewed{}.Name(), Priority: math.MaxInt32}, Report: func(election.News) {},
						Writes: func(context.Context, string) bool { return true },
					})
					p.confirmations <- election.Confirmation{Standby: election.Standby{Replica: "ghost", Priority: math.MaxInt32, Mode: election.Renewed{}.Name()}, Holder: store.Holder()}
				}
				if test.wish != "" {
					wish := fmt.Sprintf(test.wish, store.Holder())
					store.Edit(func(lease *coordinationv1.Lease) { lease.Annotations["regent.dev/wish"] = wish })
				}
				time.Sleep(lease)
				if ended := !leader.all()[0].ended.IsZero(); ended != test.ends {
					t.Errorf("the term has ended: %t; terms: %v", ended, leader.all())
				}
				if test.ends {
					leader.mustEnd(0, election.StepDown)
				}
				cancel()
				leader.stop()
				if left := store.Lease().Annotations["regent.dev/wish"]; left != "" {
					t.Errorf("the wish outlives the term: %s", left)
				}
			})
		})
	}
}
