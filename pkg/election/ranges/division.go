package ranges

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/lease"
	"github.com/regent-project/regent/pkg/election/internal/share"
)

// division is this process's part in the elections of all ranges, while there are that many.
type division struct {
	group    *Group
	stage    stage
	ranges   []Range
	names    []string // of their Leases
	electors []*election.Elector

	// led has something when a term of this process has begun in which it gathers.
	led chan struct{}

	// given says how often this process has lately given a range away, to which it has come back. balance's
	// goroutine owns it.
	given map[int]gift

	// The group's mu guards these.
	assigned []string        // instances, by range
	changed  chan struct{}   // closed when assigned changes
	changes  []chan struct{} // the same for each range: who waits for one is not woken for all
}

// divide returns the division of a stage in which this process works or gathers. It starts nothing.
func (g *Group) divide(s stage) (*division, error) {
	d := &division{group: g, stage: s, led: make(chan struct{}, 1), given: map[int]gift{}, changed: make(chan struct{})}
	for k := range s.of {
		each, of := g.cfg, Range{Index: k, Of: s.of}
		each.Name, each.Client = of.leaseName(g.cfg.Name), acquiring{g.leases, d}
		if s.do == work { // nobody else gathers
			each.Assigned = func() (string, <-chan struct{}) { return d.assignedTo(k) }
		}
		elector, err := election.New(each)
		if err != nil {
			return nil, err
		}
		d.ranges, d.names, d.electors = append(d.ranges, of), append(d.names, each.Name), append(d.electors, elector)
		d.changes = append(d.changes, make(chan struct{}))
	}
	return d, nil
}

// close removes the series of the Electors.
func (d *division) close() {
	for _, elector := range d.electors {
		elector.Close()
	}
}

// run runs all Electors until ctx ends, and returns its cause when they have ended. over ends ctx if an Elector ends by
// itself.
func (d *division) run(ctx context.Context, lead LeadFunc, over func(error)) error {
	beside := context.WithoutCancel(ctx)
	var contests []contest
	for k, elector := range d.electors {
		contests = append(contests, begin(beside, elector, func(ctx context.Context, term election.Term) error { return lead(ctx, d.ranges[k], term) }, over))
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); errors.Is(cause, errNumber) {
		for _, c := range contests {
			c.end(cause)
		}
	} else {
		endAll(contests, cause, d.group.cfg.RetryPeriod)
	}
	for _, c := range contests {
		<-c.ended
	}
	return context.Cause(ctx)
}

// hold holds the lease of a range without any work.
func (d *division) hold(ctx context.Context, _ Range, _ election.Term) error {
	select {
	case d.led <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil
}

// leadsAll reports whether this process leads all ranges.
func (d *division) leadsAll() bool {
	return !slices.ContainsFunc(d.electors, func(e *election.Elector) bool { return e.Status().State != leading })
}

// assign decides who should lead which range. all are the Leases, and members who is present, by holder identity. The
// caller holds the group's mu.
func (d *division) assign(all map[string]*seenLease, members map[string]member) {
	holders, weights, leaving := make([]string, len(d.ranges)), map[string]int{}, map[string]bool{}
	for k, name := range d.names {
		if l := all[name]; l != nil {
			holders[k] = l.holder()
			leaving[holderThatLeft(l)] = true
		}
	}
	for holder, m := range members {
		if d.group.seemsWell(m) && !leaving[holder] {
			weights[m.instance] = m.weight
		}
	}
	for k, holder := range holders {
		if holders[k] = members[holder].instance; weights[holders[k]] == 0 {
			holders[k] = ""
		}
	}
	assigned := share.Assign(holders, weights)
	for k := range assigned {
		// it has just said that it does not lead the range: nobody should leave it to it
		if last, freed := lastHolder(all[d.names[k]]); freed && members[last].instance == assigned[k] {
			assigned[k] = ""
		}
	}
	if slices.Equal(assigned, d.assigned) {
		return
	}
	for k := range d.changes {
		if at(d.assigned, k) != at(assigned, k) {
			close(d.changes[k])
			d.changes[k] = make(chan struct{})
		}
	}
	d.assigned = assigned
	close(d.changed)
	d.changed = make(chan struct{})
}

// lastHolder returns who has given up a Lease that nobody has taken since. It is not ok otherwise. A holder that has
// released it because the number of ranges changes leads on.
func lastHolder(l *seenLease) (holder string, freed bool) {
	if l == nil || l.holder() != "" {
		return "", false
	}
	if last := l.left.Last; last != nil && last.Holder != "" && !endedWithNumber(l.left) {
		return last.Holder, true
	}
	return "", false
}

// endedWithNumber reports whether the last term of a Lease ended because the number of ranges changes.
func endedWithNumber(before lease.Presence) bool {
	return strings.HasSuffix(before.LastStepDown, errNumber.Error())
}

// holderThatLeft returns the holder that has released a Lease because its process stops; empty if nobody has. Its other
// ranges are free a moment later, and its presence goes last: nobody should wait until then. A holder that releases it
// because the number of ranges changes stays.
func holderThatLeft(l *seenLease) string {
	if last := l.left.Last; last != nil && last.Cause == string(election.Shutdown) && !endedWithNumber(l.left) {
		return last.Holder
	}
	return ""
}

// assignedTo returns which instance should lead range k, and a channel that is closed when that changes.
func (d *division) assignedTo(k int) (string, <-chan struct{}) {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return at(d.assigned, k), d.changes[k]
}

// reassigned returns a channel that is closed when anything is assigned anew.
func (d *division) reassigned() <-chan struct{} {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return d.changed
}

// at returns what is assigned in place k: nothing, if nothing is.
func at(assigned []string, k int) string {
	if k >= len(assigned) {
		return ""
	}
	return assigned[k]
}

// acquiring is the client of a division's Electors. It acquires no Lease of a range unless the division is still that
// of the number. Else two could work for one key: each in a range of another number.
//
// No request is made for that. All Leases come by one watch, in the order of their revisions. So whoever has seen the
// revision of a Lease on which the write is based knows the number at that revision, and whoever changes the number
// after it has written that Lease before: it holds the leases of all ranges then.
type acquiring struct {
	*leases
	to *division
}

// Create creates a Lease.
func (a acquiring) Create(ctx context.Context, l *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := a.to.mayWrite(ctx, l); err != nil {
		return nil, err
	}
	return a.leases.Create(ctx, l, opts)
}

// Update updates a Lease.
func (a acquiring) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := a.to.mayWrite(ctx, l); err != nil {
		return nil, err
	}
	return a.leases.Update(ctx, l, opts)
}

// mayWrite returns an error if the write of a Lease would acquire it, and must not.
func (d *division) mayWrite(ctx context.Context, next *coordinationv1.Lease) error {
	if ptr.Deref(next.Spec.HolderIdentity, "") == "" || !slices.Contains(d.names, next.Name) {
		return nil
	}
	for {
		all, changed := d.group.leases.all()
		seen := all[next.Name]
		if seen != nil && next.ResourceVersion != "" && ptr.Deref(seen.Spec.LeaseTransitions, 0) >= ptr.Deref(next.Spec.LeaseTransitions, 0) {
			return nil // it goes on with a term
		}
		if all != nil && revisionOf(seen.lease()) == next.ResourceVersion {
			return d.mayAcquire(all[d.group.cfg.Name].lease(), next.Name)
		}
		if seen != nil && isNewer(seen.ResourceVersion, next.ResourceVersion) {
			return conflict(next.Name, errors.New("somebody has written it since"))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until the watch of all Leases shows Lease %s as it was read: %w", next.Name, context.Cause(ctx))
		}
	}
}

// mayAcquire returns an error if the Lease of the election has another number than the division, or one that changes.
func (d *division) mayAcquire(of *coordinationv1.Lease, name string) error {
	switch now, err := numberOn(of); {
	case err != nil:
		return err
	case !d.stage.mayAcquire(now):
		return conflict(name, errNumber)
	default:
		return nil
	}
}

// conflict returns an error that nobody need be told of, as a compare-and-swap that has failed.
func conflict(name string, why error) error {
	return apierrors.NewConflict(coordinationv1.Resource("leases"), name, why)
}

// isNewer reports whether revision a is later than b; empty: there was no Lease.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return b == "" || err == nil && order > 0
}

func revisionOf(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return l.ResourceVersion
}
