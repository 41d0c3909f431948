package survey

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// process is a replica's process that stands by.
func process(name, instance, leader string) status.Replica {
	r := follower(name, leader)
	r.Instance = instance
	return r
}

// rows are the replicas of a shard, as <instance or name>, with a ! if they do not answer.
func rows(s status.Shard) (rows []string) {
	for _, r := range s.Replicas {
		row := r.Process()
		if r.Fault != "" {
			row += "!"
		}
		rows = append(rows, row)
	}
	return rows
}

// A replica that was killed, or has stopped, and is back under its name is the same one: it is listed once, whether it
// is back at its address or at another one. Only while the Lease shows the dead process as the leader, that one is
// listed, too. Two that live are two.
func TestAReplicaThatIsBackUnderItsNameIsListedOnce(t *testing.T) {
	h := newHouse(t)
	const dead = "https://127.0.0.1:1"
	back := h.serve(h.authority, answerWith(process("b", "b_2", "self")))
	twin := h.serve(h.authority, answerWith(process("b", "b_3", "self")))
	hadBefore := func(s *Survey, url string) {
		s.roster.noteAnswer(time.Now().Add(-time.Second), status.Replica{Name: "b", Instance: "b_1", URL: url})
	}
	for name, test := range map[string]struct {
		known    func(*Survey)
		standbys []status.Standby
		election status.Election // of the one that is asked; zero: it leads
		want     string
	}{
		"killed":                  {func(s *Survey) { hadBefore(s, dead) }, nil, status.Election{}, "[b_1! self_1]"},
		"back at its address":     {func(s *Survey) { hadBefore(s, back) }, []status.Standby{{Replica: "b", Instance: "b_2", URL: back}}, status.Election{}, "[b_2 self_1]"},
		"back, and nobody knows":  {func(s *Survey) { hadBefore(s, back) }, nil, status.Election{}, "[b_2 self_1]"},
		"back at another address": {func(s *Survey) { hadBefore(s, dead) }, []status.Standby{{Replica: "b", Instance: "b_2", URL: back}}, status.Election{}, "[b_2 self_1]"},
		"back, and killed again": {func(s *Survey) {
			hadBefore(s, dead)
			s.roster.noteAnswer(time.Now(), status.Replica{Name: "b", Instance: "b_2", URL: "https://127.0.0.1:2"})
		}, nil, status.Election{}, "[b_2! self_1]"},
		"back after it has stopped in order": {func(s *Survey) {
			hadBefore(s, dead)
			s.NoteDeparture(status.Farewell{Replica: "b", Instance: "b_1"})
		}, []status.Standby{{Replica: "b", Instance: "b_2", URL: back}}, status.Election{}, "[b_2 self_1]"},
		"back after it has stopped in order, and killed": {func(s *Survey) {
			hadBefore(s, dead)
			s.NoteDeparture(status.Farewell{Replica: "b", Instance: "b_1"})
			s.roster.noteAnswer(time.Now(), status.Replica{Name: "b", Instance: "b_2", URL: "https://127.0.0.1:2"})
		}, nil, status.Election{}, "[b_2! self_1]"},
		"it led, and is back before it is succeeded": {func(s *Survey) { hadBefore(s, back) }, nil,
			status.Election{Leader: "b", LeaderInstance: "b_1", LeaderURL: back}, "[b_1! b_2 self_1]"},
		"it led, and has succeeded itself": {func(s *Survey) { hadBefore(s, back) }, nil,
			status.Election{Leader: "b", LeaderInstance: "b_2", LeaderURL: back}, "[b_2 self_1]"},
		"two live": {func(*Survey) {}, []status.Standby{{Replica: "b", Instance: "b_2", URL: back}, {Replica: "b", Instance: "b_3", URL: twin}}, status.Election{}, "[b_2 b_3 self_1]"},
		"two live, and one cannot be asked": {func(*Survey) {}, []status.Standby{{Replica: "b", Instance: "b_2", URL: back}, {Replica: "b", Instance: "b_3", URL: dead}},
			status.Election{}, "[b_2 b_3! self_1]"},
		"one has the name of the one that is asked": {func(s *Survey) {}, []status.Standby{{Replica: "self", Instance: "self_2", URL: dead}}, status.Election{}, "[self_1 self_2!]"},
		"an older leader names no instances": {func(s *Survey) { hadBefore(s, dead) }, nil,
			status.Election{Leader: "old", LeaderURL: h.serve(h.authority, answerWith(status.Replica{Shard: "root", Name: "old", Election: status.Election{Leader: "old", Standbys: []status.Standby{
				{Replica: "b", URL: back}, {Replica: "self", URL: "https://self"},
			}}}))}, "[b_2 old self_1]"},
	} {
		t.Run(name, func(t *testing.T) {
			self := status.Replica{Shard: "root", Name: "self", Instance: "self_1", URL: "https://self", Election: test.election}
			if self.Election.Leader == "" {
				self.Election = status.Election{Leader: "self", LeaderInstance: "self_1"}
			}
			self.Election.Standbys = test.standbys
			s := h.survey(self)
			test.known(s)
			got := s.Shard(t.Context())
			if got := fmt.Sprint(rows(got)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			led := slices.DeleteFunc(slices.Clone(got.Replicas), func(r status.Replica) bool { return !got.LedBy(r) })
			if len(led) != 1 {
				t.Errorf("%d replicas lead: %+v", len(led), led)
			}
		})
	}
}

// An older version tells of its end by a name that is its process's. A person may tell of one that has gone by the
// replica's name. Neither hides the process that has the name next.
func TestANameThatHasLeftMayComeBack(t *testing.T) {
	var r roster
	now := time.Now()
	answers := func(name, instance string) { r.noteAnswer(now, status.Replica{Name: name, Instance: instance}) }
	knows := func(when, want string) {
		t.Helper()
		var got []string
		for _, t := range r.list() {
			got = append(got, t.process())
		}
		if slices.Sort(got); fmt.Sprint(got) != want {
			t.Errorf("%s it knows %q, want %s", when, got, want)
		}
	}
	answers("b", "b_1")
	answers("host_1234abcd", "")
	r.leave(now, true, "b", "host_1234abcd")
	knows("after they have left", "[]")
	answers("b", "b_2")
	answers("host_1234abcd", "")
	knows("after one is back", "[b_2]")
	r.leave(now, false, "b") // another one tells of what it was told
	knows("after it was reminded", "[b_2]")
}

// A leader of the same name is asked to step down by the one that was asked first, which does not take itself for it.
func TestTheLeaderIsHereIfItIsThisProcess(t *testing.T) {
	h := newHouse(t)
	for want, e := range map[bool]status.Election{
		true:  {Leader: "a", LeaderInstance: "a_1", LeaderURL: "https://a"},
		false: {Leader: "a", LeaderInstance: "a_2", LeaderURL: "https://other"},
	} {
		name, url, here := h.survey(status.Replica{Name: "a", Instance: "a_1", URL: "https://a", Election: e}).Leader()
		if name != "a" || url != e.LeaderURL || here != want {
			t.Errorf("%+v: %s at %s, here: %t", e, name, url, here)
		}
	}
}
