package server

import (
	"slices"
	"testing"
)

// shardOf is a shard of replicas that all cannot run some controllers, told as lead does it.
type shardOf struct {
	poisoned []string
	replicas []*poison
	lease    []string // what the last leader stepped down for
}

// lead has a replica lead; it reports whether the replica leads on.
func (s *shardOf) lead(r *poison) (on bool) {
	tolerated := r.tolerated(s.lease)
	for _, part := range s.poisoned {
		if !slices.Contains(tolerated, part) {
			s.lease = append(slices.Clone(tolerated), part)
			r.steppedDown(s.lease)
			return false
		}
	}
	return true
}

func TestAShardWhoseReplicasAreAllPoisonedGetsALeader(t *testing.T) {
	for _, poisoned := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
		for _, n := range []int{1, 2, 3} {
			s := &shardOf{poisoned: poisoned}
			for range n {
				s.replicas = append(s.replicas, &poison{})
			}
			terms := 0
			for leads := false; !leads; terms++ {
				if terms > 2*n*len(poisoned)+n {
					t.Fatalf("%d replicas that cannot run %v: nobody leads after %d terms", n, poisoned, terms)
				}
				leads = s.lead(s.replicas[terms%n])
			}
			t.Logf("%d replicas that cannot run %v: the %d. term lasts", n, poisoned, terms)
		}
	}
}

func TestAReplicaToleratesOnlyWhatItAndItsPredecessorSteppedDownFor(t *testing.T) {
	p := &poison{}
	if got := p.tolerated([]string{"a"}); len(got) != 0 {
		t.Errorf("tolerates %v without having stepped down", got)
	}
	p.steppedDown([]string{"a", "b"})
	p.steppedDown([]string{"b", "c"})
	for _, c := range []struct{ predecessor, want []string }{
		{nil, nil}, {[]string{"x"}, nil}, {[]string{"b", "x"}, []string{"b"}}, {[]string{"c", "a"}, []string{"a", "c"}},
	} {
		if got := p.tolerated(c.predecessor); !slices.Equal(got, c.want) {
			t.Errorf("after one that stepped down for %v it tolerates %v, want %v", c.predecessor, got, c.want)
		}
	}
	p.worked("b")
	if got := p.tolerated([]string{"a", "b", "c"}); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("tolerates %v, although b worked", got)
	}
	p.forgetAllBut([]string{"c", "d"})
	if got := p.tolerated([]string{"a", "b", "c", "d"}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("tolerates %v after a term in which all but c and d were well", got)
	}
}
