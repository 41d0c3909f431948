package detect

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

// From its followers a leader learns that a replica that seemed to be dead is alive. Replicas that follow for the other
// Lease do not count.
func TestWhoFollowsForAnotherLeaseSaysWhichOfItsTermsItLedLast(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	follow(t, leader.Contact(), func(f *follower) {
		f.is = election.Standby{Mode: election.Coordinated{}.Name(), Led: "of the one Lease"}
	})
	standby := newDetector(t, "standby", "127.0.0.1:0")
	standby.secret = shardSecret
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		standby.For("another").Follow(ctx, leader.Contact(), election.Follower{
			Is: election.Standby{Instance: "standby_1", Mode: election.Renewed{}.Name(), Led: "of the other", URL: "https://b"}, Report: func(election.News) {},
		})
	})
	waitFor(t, "both follow", func() bool { return len(leader.Followers()) == 2 })
	want := []election.Standby{{Replica: "standby", Instance: "standby_1", Led: "of the other", URL: "https://b"}}
	if got := leader.For("another").Followers(); !slices.Equal(got, want) {
		t.Errorf("followed by %+v, want %+v", got, want)
	}
}
