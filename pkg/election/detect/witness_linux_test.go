package detect

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
)

// awaitWitness waits until a standby has a stream to the leader's witness.
func awaitWitness(t *testing.T, leader *Detector) {
	t.Helper()
	for began := time.Now(); time.Since(began) < within; time.Sleep(time.Millisecond) {
		limits := leader.witness.(*limitedListener)
		limits.mu.Lock()
		streams := limits.authenticated
		limits.mu.Unlock()
		if streams > 0 {
			return
		}
	}
	t.Fatal("nobody follows the witness")
}

// The kernel closes the sockets of all threads at once but those of the last one. The witness tells of the death if that is the probe's.
func TestAWitnessTellsOfADeathBeforeTheProbeDoes(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	leader.Say(election.Statement{Holder: "h"})
	f := follow(t, leader.Contact())
	f.next(t, sign(election.Alive))
	awaitWitness(t, leader)
	_ = leader.witness.Close()
	gone := f.next(t, sign(election.Dead), election.Silent)
	if gone.Said.Holder != "h" || gone.Since.IsZero() {
		t.Errorf("news: %+v", gone)
	}
	// Here the probe lives. Whoever speaks is not dead.
	f.next(t, sign(election.Alive), election.Silent)
}

// The probe's stream may break while the witness is dialled. What follows from that does not wait for the witness. In a bubble
// time stands still while a loop spins, so a loop that waits for the time would never end.
func TestALookAtAWitnessEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if refuses(ctx, "127.0.0.1:1") {
			t.Error("nobody was asked")
		}
	})
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
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				for len(f.news) > 0 {
					if n := <-f.news; n.Sign != election.Alive {
						t.Fatalf("news: %+v", n)
					}
				}
			}
		})
	}
}
