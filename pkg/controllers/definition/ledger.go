package definition

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ledger is what the definitions of an API group in a logical cluster have got, and who waits for what. A change of a
// definition is looked at with those that it concerns, which does not take longer if there are more others.
//
// A definition keeps the names that it has got. Of two that want the same name, the older one gets it. A name that one
// of them gives up is free once that has been written, so each of the writes may fail.
//
// A late cache does no harm: what was written is known at once, and the cache's older states are ignored.
type ledger struct {
	known map[string]definition // by name, each in its latest state
	// bound are those who have names of the group without a definition.
	bound []holder
	taken claims
	// open are the definitions that must be looked at. settled ones are not among them, nor those that wait, and
	// say so.
	open sets.Set[string]
	// wanted are those that are not settled, by each name that they want.
	wanted map[claim]sets.Set[string]
	// leaving are those that wait for their objects to be deleted.
	leaving sets.Set[string]
	// unseen are those that were written, and that the cache has not shown since.
	unseen sets.Set[string]
}

func newLedger(group []definition) *ledger {
	l := &ledger{known: map[string]definition{}, taken: claims{}, open: sets.New[string](), wanted: map[claim]sets.Set[string]{}, leaving: sets.New[string](), unseen: sets.New[string]()}
	for _, d := range group {
		l.put(d.Name, d)
	}
	return l
}

// show notes what the cache has of a definition: nil, if it has gone.
func (l *ledger) show(name string, d definition) {
	if was := l.known[name]; d != nil && was != nil && older(d, was) {
		return
	}
	l.unseen.Delete(name)
	l.put(name, d)
}

// wrote notes what has been written of a definition.
func (l *ledger) wrote(d definition) {
	l.put(d.Name, d)
	l.unseen.Insert(d.Name)
}

func older(a, b definition) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// put replaces what is known of a definition. Whoever waits for a name that gets free, or that is taken, is looked at
// again.
func (l *ledger) put(name string, d definition) {
	was := l.known[name]
	if was == d && d != nil {
		return
	}
	var changed []claim
	if d != nil {
		changed = l.taken.add(&d.Status.AcceptedNames)
		l.known[name] = d
	} else {
		delete(l.known, name)
	}
	if was != nil {
		l.want(was, false)
		changed = append(changed, l.taken.remove(&was.Status.AcceptedNames)...)
	}
	l.open.Delete(name)
	if d != nil && !settled(d) {
		l.open.Insert(name)
		l.want(d, true)
	}
	l.reopen(changed)
	l.leaving.Delete(name)
	if d != nil && leaving(d) {
		l.leaving.Insert(name)
	}
}

// reopen has those looked at again who wait for one of the names.
func (l *ledger) reopen(changed []claim) {
	for _, c := range changed {
		for waits := range l.wanted[c] {
			l.open.Insert(waits)
		}
	}
}

// want notes which names a definition waits for, or that it does no more.
func (l *ledger) want(d definition, does bool) {
	for c := range claimsOf(&d.Spec.Names) {
		switch of := l.wanted[c]; {
		case does && of == nil:
			l.wanted[c] = sets.New(d.Name)
		case does:
			of.Insert(d.Name)
		case of.Delete(d.Name).Len() == 0:
			delete(l.wanted, c)
		}
	}
}

// due returns the open definitions whose status does not say yet what their names come to, as it should be written.
// They stay open until it was.
func (l *ledger) due() (due []definition) {
	order := make([]definition, 0, l.open.Len())
	for name := range l.open {
		order = append(order, l.known[name])
	}
	slices.SortFunc(order, func(a, b definition) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range order {
		l.taken.remove(&d.Status.AcceptedNames)
		out := resolve(d, l.taken, l.who)
		l.taken.add(&d.Status.AcceptedNames)
		if out == nil {
			if len(due) == 0 { // otherwise it may depend on a write that fails
				l.open.Delete(d.Name)
			}
			continue
		}
		l.taken.add(&out.Status.AcceptedNames)
		due = append(due, out)
	}
	for _, out := range due { // none of it has been written
		l.taken.remove(&out.Status.AcceptedNames)
	}
	return due
}
