package detect

import (
	"context"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

// streams returns how many streams others keep to this process.
func (d *Detector) streams() (all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.followers {
		all += n
	}
	return all
}

// haveBoth waits until somebody follows both the leader's probe and its witness.
func haveBoth(t *testing.T, leader *Detector) {
	t.Helper()
	waitFor(t, "a stream to the probe and one to the witness", func() bool { return leader.streams() == 2 })
}

// The kernel closes the sockets of all threads at once but those of the last one. The witness tells of the death if
// that is the probe's.
func TestAWitnessTellsOfADeathBeforeTheProbeDoes(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0", patient)
	leader.Say(election.Statement{Holder: "h"})
	f := follow(t, leader.Contact(), unhurried)
	f.next(t, sign(election.Alive))
	haveBoth(t, leader)
	_ = leader.witness.Close()
	gone := f.next(t, sign(election.Dead), election.Silent)
	if gone.Said.Holder != "h" || gone.Since.IsZero() {
		t.Errorf("news: %+v", gone)
	}
	f.next(t, sign(election.Alive), election.Silent) // here the probe lives, and whoever speaks is not dead
}

// Whoever follows for another Lease, in mode coordinated, has both streams, too.
func TestAWitnessTellsAnAliasOfADeath(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0", patient)
	standby := newDetector(t, "standby", "127.0.0.1:0")
	standby.secret = shardSecret
	f := &follower{Detector: standby, news: make(chan election.News, 1000)}
	unhurried(f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		standby.For("another").Follow(ctx, leader.Contact(), election.Follower{Report: func(n election.News) { f.news <- n }})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	f.next(t, sign(election.Alive))
	haveBoth(t, leader)
	_ = leader.witness.Close()
	f.next(t, sign(election.Dead), election.Silent)
}
