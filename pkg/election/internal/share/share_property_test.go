package share

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// situation is who leads which range, and who could.
type situation struct {
	holders  []string
	replicas map[string]int
}

var situations = rapid.Custom(func(t *rapid.T) situation {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 1, 8, rapid.ID[string]).Draw(t, "names")
	s := situation{replicas: map[string]int{}}
	for _, name := range names {
		s.replicas[name] = rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(t, "weight")
	}
	s.holders = rapid.SliceOfN(rapid.SampledFrom(append(names, "", "gone")), 1, 100).Draw(t, "holders")
	return s
})

// countEach returns how many ranges each replica has.
func countEach(assigned []string) map[string]int {
	n := map[string]int{}
	for _, replica := range assigned {
		n[replica]++
	}
	return n
}

// Everybody gets a share by weight, whoever looks decides the same, and what is decided stays.
func TestEachReplicaGetsItsShareAndKeepsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations.Draw(t, "situation")
		assigned, total := Assign(s.holders, s.replicas), 0
		for _, weight := range s.replicas {
			total += weight
		}
		if len(assigned) != len(s.holders) {
			t.Fatalf("%d of %d ranges", len(assigned), len(s.holders))
		}
		held, gets, surplus, moved := countEach(s.holders), countEach(assigned), 0, 0
		for replica, weight := range s.replicas {
			exact, most := len(s.holders)*weight/total, len(s.holders)*weight/total
			if len(s.holders)*weight%total > 0 {
				most++
			}
			if gets[replica] < exact || gets[replica] > most {
				t.Errorf("%s gets %d ranges, its share is %d to %d", replica, gets[replica], exact, most)
			}
			surplus += max(0, held[replica]-gets[replica])
		}
		for k, replica := range assigned {
			if _, ok := s.replicas[replica]; !ok {
				t.Errorf("range %d goes to %q, which is not there", k, replica)
			}
			if _, there := s.replicas[s.holders[k]]; there && replica != s.holders[k] {
				moved++
			}
		}
		if moved != surplus {
			t.Errorf("%d ranges of those who are there move, %d have to", moved, surplus)
		}
		if again := Assign(assigned, s.replicas); !slices.Equal(again, assigned) {
			t.Errorf("decided again it is %v, before %v", again, assigned)
		}
		if others := Assign(slices.Clone(s.holders), maps.Clone(s.replicas)); !slices.Equal(others, assigned) {
			t.Errorf("another decides %v, this one %v", others, assigned)
		}
	})
}

// A replica that comes gets its share, and a replica that goes leaves its ranges: nothing else moves, where all weigh
// the same. With weights the shares of others are rounded anew.
func TestOnlyTheShareOfWhoComesOrGoesMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations.Draw(t, "situation")
		for replica := range s.replicas {
			s.replicas[replica] = 1
		}
		before := Assign(s.holders, s.replicas)
		s.replicas["new"] = 1
		with := Assign(before, s.replicas)
		for k := range before {
			if with[k] != before[k] && with[k] != "new" {
				t.Errorf("range %d moves from %s to %s because another came", k, before[k], with[k])
			}
		}
		delete(s.replicas, "new")
		without := Assign(with, s.replicas)
		for k := range with {
			if without[k] != with[k] && with[k] != "new" {
				t.Errorf("range %d moves from %s to %s because another went", k, with[k], without[k])
			}
		}
	})
}
