package supervisor

import (
	"errors"
	"slices"
	"testing"
)

// shardOf is a shard of replicas each of which cannot run some controllers, told as lead does it.
type shardOf struct {
	poisoned [][]string // by replica
	memory   []*memory
	lease    []string // what the last leaders stepped down for
}

// lead has a replica lead; it reports whether the replica leads on.
func (s *shardOf) lead(replica int) (on bool) {
	memory := s.memory[replica]
	tolerated := memory.tolerated(s.lease)
	for _, part := range s.poisoned[replica] {
		if !slices.Contains(tolerated, part) {
			err := &ControllerError{Controller: part, Err: errors.New("poisoned")}
			memory.steppedDown(append(slices.Clone(tolerated), part))
			s.lease = append(ofTerm(err, s.lease).(*termError).failed, part)
			return false
		}
	}
	return true
}

func TestAShardWhoseReplicasAreAllPoisonedGetsALeader(t *testing.T) {
	a, ab, b, abc := []string{"a"}, []string{"a", "b"}, []string{"b"}, []string{"a", "b", "c"}
	for _, poisoned := range [][][]string{
		{a}, {ab}, {abc}, {a, a}, {ab, ab}, {abc, abc, abc}, {a, b}, {ab, b}, {a, ab}, {a, b, []string{"c"}}, {ab, abc, b},
	} {
		s := &shardOf{poisoned: poisoned}
		for range poisoned {
			s.memory = append(s.memory, &memory{})
		}
		terms := 0
		for leads := false; !leads; terms++ {
			if terms > 12 {
				t.Fatalf("replicas that cannot run %v: nobody leads after %d terms", poisoned, terms)
			}
			leads = s.lead(terms % len(poisoned))
		}
		t.Logf("replicas that cannot run %v: the %d. term lasts", poisoned, terms)
	}
}

func TestAReplicaToleratesOnlyWhatItAndItsPredecessorSteppedDownFor(t *testing.T) {
	p := &memory{}
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
