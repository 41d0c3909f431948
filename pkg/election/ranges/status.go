package ranges

import (
	"cmp"
	"slices"

	"github.com/regent-project/regent/pkg/election"
)

// Status is what a process knows of an election by ranges.
type Status struct {
	// Ranges has all ranges, in order.
	Ranges []Range
	// Processes are those that are present, this one included, ordered by their names.
	Processes []Process
}

// Range is what is known of a range.
type Range struct {
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
	// Sign is how this process hears it. It is election.NoSign for this process itself, and without a Detector.
	Sign election.Sign
}

// Status returns what this process knows now. It makes no request. Any goroutine may call it at any time.
func (g *Group) Status() Status {
	g.mu.Lock()
	assigned, members := g.assigned, g.members
	g.mu.Unlock()
	var s Status
	leads, share := map[string]int{}, map[string]int{}
	for k, elector := range g.electors {
		r := Range{Status: elector.Status()}
		if k < len(assigned) {
			r.Assigned = assigned[k]
		}
		leads[r.Holder]++
		share[r.Assigned]++
		s.Ranges = append(s.Ranges, r)
	}
	for _, m := range members {
		p := Process{
			Names: election.Names{Replica: m.replica, Instance: m.instance}, URL: m.url, Weight: m.weight, Leads: leads[m.holder], Share: share[m.instance],
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
