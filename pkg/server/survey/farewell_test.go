package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// A replica that ends in order says so to all others that it knows. One that fails says nothing.
func TestWhoEndsInOrderTellsTheOthers(t *testing.T) {
	h := newHouse(t)
	for _, leaves := range []bool{true, false} {
		heard := make(chan string, 2)
		hears := h.serve(h.authority, func(w http.ResponseWriter, req *http.Request) {
			var farewell status.Farewell
			if err := json.NewDecoder(req.Body).Decode(&farewell); err != nil || req.Method != http.MethodPost || req.URL.Path != status.FarewellPath {
				w.WriteHeader(http.StatusForbidden)
			}
			heard <- farewell.Replica
		})
		h.leaving(patient, leaves, status.Standby{Replica: "hears", URL: hears}, status.Standby{Replica: "gone", URL: "https://127.0.0.1:1"}, status.Standby{Replica: "old"})
		close(heard)
		got := []string{}
		for name := range heard {
			got = append(got, name)
		}
		if want := map[bool]string{true: "[self]", false: "[]"}[leaves]; fmt.Sprint(got) != want {
			t.Errorf("told %q, want %s", got, want)
		}
	}
}

// A replica that ends does not wait for long for one that hangs.
func TestWhoEndsDoesNotWaitForWhoHangs(t *testing.T) {
	h := newHouse(t)
	var asked atomic.Int32
	hangs := h.serve(h.authority, func(_ http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, req.Body) // what is read to its end tells of the client's end
		<-req.Context().Done()
	})
	h.leaving(usual, true, status.Standby{Replica: "hangs", URL: hangs}) // which returns
	if asked.Load() > 1 {
		t.Errorf("it asks %d times", asked.Load())
	}
}

// leaving runs the Survey of a replica that knew those standbys until it has ended.
func (h *house) leaving(within patience, inOrder bool, standbys ...status.Standby) {
	self := status.Replica{Shard: "root", Name: "self", Election: status.Election{Leader: "self", Standbys: standbys}}
	s := h.survey(self, func(c *Config) { c.Leaves = func() bool { return inOrder } })
	s.patience = within
	s.roster.note(time.Now(), self)
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	s.Run(ctx)
}

// Whoever has left is not asked any more and not listed, whoever heard of it: unless the Lease shows that it leads.
func TestWhoHasLeftIsListedNoMore(t *testing.T) {
	h := newHouse(t)
	dead := "https://127.0.0.1:1"
	leader := status.Replica{Shard: "root", Name: "leader", Left: []string{"left"}, Election: status.Election{Leader: "leader", Standbys: []status.Standby{{Replica: "self"}, {Replica: "left", URL: dead}}}}
	for name, test := range map[string]struct {
		leader string
		heard  bool // or does the leader tell?
		want   string
	}{
		"it was told":                  {"", true, "[self]"},
		"the leader was told":          {"leader", false, "[leader self]"},
		"it could not release a lease": {"left", true, "[left self]"},
	} {
		t.Run(name, func(t *testing.T) {
			self := follower("self", test.leader)
			switch test.leader {
			case "leader":
				self.Election.LeaderURL = h.serve(h.authority, answerWith(leader))
			case "left":
				self.Election.LeaderURL = dead
			}
			s := h.survey(self)
			s.roster.noteAnswer(time.Now(), status.Replica{Name: "left", URL: dead})
			if test.heard {
				s.NoteDeparture(status.Farewell{Replica: "left"})
			}
			got := s.Shard(t.Context())
			if names := slices.Sorted(maps.Keys(faults(got))); fmt.Sprint(names) != test.want {
				t.Errorf("listed: %q, want %s", names, test.want)
			}
			for _, r := range s.roster.list() {
				if r.name == "left" {
					t.Error("it is remembered")
				}
			}
			if got := s.roster.departed(time.Now()); !slices.Equal(got, []string{"left"}) {
				t.Errorf("%q have left", got)
			}
		})
	}
}

func TestWhoHasLeftIsForgottenAfterSomeTime(t *testing.T) {
	var r roster
	now := time.Now()
	for n := range 2 * mostReplicas {
		r.leave(now, true, fmt.Sprint(n))
	}
	if got := len(r.departed(now.Add(memory - time.Second))); got != mostReplicas {
		t.Errorf("%d have left", got)
	}
	if got := r.departed(now.Add(memory + time.Second)); len(got) != 0 {
		t.Errorf("remembered for ever: %q", got)
	}
	r.leave(now, true, "old")
	r.leave(now.Add(memory+time.Second), true, "new") // nobody has asked meanwhile
	if got := slices.Sorted(maps.Keys(r.departures)); !slices.Equal(got, []string{"new"}) {
		t.Errorf("it keeps %q", got)
	}
}

// Replicas that ask each other all the time, because somebody looks at the page, forget those that have left all the
// same.
func TestReplicasDoNotRemindEachOtherOfWhoHasLeft(t *testing.T) {
	var a, b roster
	began := time.Now()
	a.leave(began, true, "left")
	for after := memory / 2; after <= 3*memory; after += memory / 4 {
		now := began.Add(after)
		b.leave(now, false, a.tellable(now)...)
		a.leave(now, false, b.tellable(now)...)
		if got := b.departed(now); after < memory && !slices.Equal(got, []string{"left"}) {
			t.Errorf("after %v the other one knows of %q", after, got)
		}
	}
	now := began.Add(3*memory + time.Second)
	if got := append(a.departed(now), b.departed(now)...); len(got) != 0 {
		t.Errorf("remembered for ever: %q", got)
	}
	b.leave(now, false, "late")
	b.leave(now.Add(time.Second), true, "late") // itself, after others
	if got := b.tellable(now.Add(time.Second)); !slices.Equal(got, []string{"late"}) {
		t.Errorf("it tells of %q", got)
	}
}
