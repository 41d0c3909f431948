package detect

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
)

// followBoth follows a leader, and returns when there is a stream to its probe and one to its witness.
func followBoth(t *testing.T, leader *Detector) *follower {
	t.Helper()
	met := make(chan struct{}, 1000)
	f := follow(t, leader.Contact(), func(f *follower) { f.witnessed = func() { met <- struct{}{} } })
	f.next(t, sign(election.Alive))
	receive(t, met)
	return f
}

// The kernel closes the sockets of all threads at once but those of the last one. The witness tells of the death if that is the probe's.
func TestAWitnessTellsOfADeathBeforeTheProbeDoes(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	leader.Say(election.Statement{Holder: "h"})
	f := followBoth(t, leader)
	_ = leader.witness.Close()
	gone := f.next(t, sign(election.Dead), election.Silent)
	if gone.Said.Holder != "h" || gone.Since.IsZero() {
		t.Errorf("news: %+v", gone)
	}
	// Here the probe lives. Whoever speaks is not dead, and is not said to be so again.
	f.next(t, sign(election.Alive), election.Silent)
	f.staysAlive(t)
}

// staysAlive fails on other news than beats for a while.
func (f *follower) staysAlive(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for len(f.news) > 0 {
			if n := <-f.news; n.Sign != election.Alive {
				t.Fatalf("news: %+v", n)
			}
		}
	}
}

// Whoever follows for another Lease, in mode coordinated, has both streams, too.
func TestAWitnessTellsAnAliasOfADeath(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	standby := newDetector(t, "standby", "127.0.0.1:0")
	standby.secret = shardSecret
	f := &follower{news: make(chan election.News, 1000)}
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
	for began := time.Now(); leader.streams() < 2 && time.Since(began) < within; time.Sleep(time.Millisecond) {
	}
	f.staysAlive(t) // meanwhile the second stream reaches it
	_ = leader.witness.Close()
	f.next(t, sign(election.Dead), election.Silent)
}

// streams returns how many streams others keep to this process.
func (d *Detector) streams() (all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.followers {
		all += n
	}
	return all
}

// speaker speaks for a leader, and names a port of its witness.
func speaker(t *testing.T, witness string) election.Contact {
	t.Helper()
	return actAs(t, newDetector(t, "leader", "127.0.0.1:0"), func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(witnessHeader, witness)
		for req.Context().Err() == nil {
			_, _ = w.Write(lineOf(election.Statement{Holder: "h"}))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A port that never answered with the leader's key says nothing: a firewall may be before it, or somebody else behind it.
func TestAWitnessThatNeverAnsweredTellsNothing(t *testing.T) {
	for name, key := range map[string]bool{"refused from the beginning": false, "of another key, and then refused": true} {
		t.Run(name, func(t *testing.T) {
			other := open(t, "other", "127.0.0.1:0")
			if !key {
				other.Close()
			}
			f := follow(t, speaker(t, portOf(other.listener)))
			f.next(t, sign(election.Alive))
			time.Sleep(100 * time.Millisecond) // it tries
			other.Close()
			f.staysAlive(t)
		})
	}
}
