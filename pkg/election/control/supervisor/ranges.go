package supervisor

import (
	"context"
	"sync"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// RangeTerm is a term of a range.
type RangeTerm struct {
	election.Term
	// Range says for which keys the term leads.
	Range ranges.Range
}

// LeadRanges returns the function of a ranges.Group, or of a leader.Group, that runs these controllers in each term of
// each range, as Lead does for an elector. Those of different ranges run at the same time. Their constructors get the
// term and its range, and should have them work at keys of that range only.
//
//	err := group.Run(ctx, supervisor.LeadRanges(sweeper, binder))
//
// It panics as Lead does.
func LeadRanges(set ...control.Descriptor[RangeTerm]) ranges.LeadFunc {
	registry, err := control.NewRegistry(set...)
	if err != nil {
		panic(err)
	}
	leaders := rangeLeaders{registry: registry, of: map[ranges.Range]*Leader[RangeTerm]{}}
	return func(ctx context.Context, of ranges.Range, term election.Term) error {
		leader, err := leaders.get(of)
		if err != nil {
			return err
		}
		return leader.Lead(ctx, term, RangeTerm{term, of})
	}
}

// rangeLeaders has a Leader for each range, which remembers for which controllers this replica has stepped down there.
type rangeLeaders struct {
	registry *control.Registry[RangeTerm]

	mu sync.Mutex
	of map[ranges.Range]*Leader[RangeTerm]
}

func (l *rangeLeaders) get(of ranges.Range) (*Leader[RangeTerm], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leader := l.of[of]; leader != nil {
		return leader, nil
	}
	for other, leader := range l.of { // of another number, whose terms have all ended
		if other.Of != of.Of {
			leader.Close()
			delete(l.of, other)
		}
	}
	leader, err := NewLeader(Config{}, l.registry)
	if err == nil {
		l.of[of] = leader
	}
	return leader, err
}
