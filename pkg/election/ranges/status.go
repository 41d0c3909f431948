package ranges

import (
	"cmp"
	"slices"

	"github.com/regent-project/regent/pkg/election"
)

// Status is what a process knows of an election by ranges.
type Status struct {
	// Number is how many ranges there are; 0: that is not known yet. Wanted is how many this process wants, and
	// Waits says why it leads none, as while the number changes; empty: it leads its share.
	Number, Wanted int
	Waits          string
	// Ranges has all ranges, in order; none while this process waits.
	Ranges []RangeStatus
	// Processes are those that are present, this one included, ordered by their names.
	Processes []Process
}

// RangeStatus is what is known of a range.
type RangeStatus struct {
	election.Status
	// Assigned is the Instance of the process that should lead it; empty while nobody can.
	Assigned string
}

// Process is a process that is present.
type Process struct {
	election.Names
	// URL is where it can be reached; empty if it does not say.
	URL string
	// Weight is how large a share it wants, beside others. Leads is how many ranges it leads, and Share how many it
	// should lead.
	Weight, Leads, Share int
	// Wants is how many ranges it wants there to be.
	Wants int
	// Sign is how this process hears it. It is election.NoSign for this process itself, and without a Detector.
	Sign election.Sign
}

// Status returns what this process knows now. It makes no request. Any goroutine may call it at any time.
func (g *Group) Status() Status {
	g.mu.Lock()
	members := g.members
	s := Status{Number: g.number.Ranges, Wanted: g.cfg.Ranges, Waits: cmp.Or(g.held, g.stage.waits())}
	electors, assigned := g.standing()
	g.mu.Unlock()
	leads, share := map[string]int{}, map[string]int{}
	for k := range electors {
		r := rangeStatus(k, electors, assigned)
		leads[r.Holder]++
		share[r.Assigned]++
		s.Ranges = append(s.Ranges, r)
	}
	for _, m := range members {
		p := Process{
			Names: election.Names{Replica: m.replica, Instance: m.instance}, URL: m.url, Weight: m.weight, Leads: leads[m.holder], Share: share[m.instance], Wants: m.wants,
		}
		if g.contacts != nil {
			p.Sign = g.contacts.latest(m.contact).Sign
		}
		s.Processes = append(s.Processes, p)
	}
	slices.SortFunc(s.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Instance, b.Instance))
	})
	return s
}

// Range returns what Status says of range k, and asks no Elector of another. It is not ok while this process waits, or
// if there is no such range. Any goroutine may call it at any time.
func (g *Group) Range(k int) (r RangeStatus, ok bool) {
	g.mu.Lock()
	electors, assigned := g.standing()
	g.mu.Unlock()
	if k < 0 || k >= len(electors) {
		return r, false
	}
	return rangeStatus(k, electors, assigned), true
}

// standing returns the Electors of all ranges, and to whom these are assigned; nil while this process waits. The caller
// holds mu.
func (g *Group) standing() (electors []*election.Elector, assigned []string) {
	if g.stage.do == work && g.now != nil && g.now.stage == g.stage {
		return g.now.electors, g.now.assigned
	}
	return nil, nil
}

func rangeStatus(k int, electors []*election.Elector, assigned []string) RangeStatus {
	r := RangeStatus{Status: electors[k].Status()}
	if k < len(assigned) {
		r.Assigned = assigned[k]
	}
	return r
}
