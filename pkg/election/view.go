package election

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
)

// view is the one place where what is learnt of the Lease comes together: from the watch, from reads, and from the
// answers to our own writes. News is ordered by revision, so an event that arrives after the answer to a later write
// changes nothing.
type view struct {
	logger klog.Logger
	// ours tells this process's identities from others.
	ours func(identity string) bool

	mu      sync.Mutex
	seen    observation
	changed chan struct{} // closed at the next change
}

func newView(logger klog.Logger, ours func(string) bool) *view {
	return &view{logger: logger, ours: ours, changed: make(chan struct{})}
}

// latest returns what is known, and a channel that is closed when that changes.
func (v *view) latest() (observation, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen, v.changed
}

// see takes in the Lease as of its own revision. It reports whether that was news.
func (v *view) see(lease *coordinationv1.Lease) bool {
	return v.take(lease, lease.ResourceVersion)
}

// seeNone takes in that there was no Lease as of revision.
func (v *view) seeNone(revision string) bool {
	return v.take(nil, revision)
}

// seeList takes in a read, and returns the Lease it shows; nil if none.
func (v *view) seeList(list *coordinationv1.LeaseList) *coordinationv1.Lease {
	if len(list.Items) == 0 {
		v.seeNone(list.ResourceVersion)
		return nil
	}
	v.see(&list.Items[0])
	return &list.Items[0]
}

func (v *view) take(lease *coordinationv1.Lease, revision string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, news := v.seen.next(lease, revision, time.Now())
	if !news {
		v.seen = seen
		return false
	}
	v.report(v.seen, seen)
	v.seen = seen
	close(v.changed)
	v.changed = make(chan struct{})
	return true
}

// report logs a change of leader, once, whoever brings the news. Our own terms are logged where they begin and end.
func (v *view) report(before, now observation) {
	was, is := before.signs(), now.signs()
	was.renewed, is.renewed = 0, 0
	switch {
	case before.known() && was == is:
	case now.holder() != "" && v.ours(now.holder()):
		v.logger.V(6).Info("Saw our own identity on the Lease", "epoch", now.epoch(), "holder", now.holder())
	case now.lease == nil && before.known():
		v.logger.Info("Leader changed", "reason", "the Lease was deleted", "epoch", before.epoch(), "from", before.holder(), "to", "")
	case now.lease == nil:
		v.logger.V(2).Info("There is no Lease yet")
	case now.holder() == "" && v.ours(before.holder()):
		v.logger.V(6).Info("Saw our own release on the Lease", "epoch", now.epoch())
	case now.holder() == "":
		v.logger.Info("Leader changed", "reason", "the lease is free", "epoch", now.epoch(), "from", before.holder(), "to", "",
			"lastStepDown", presenceOf(now.lease).LastStepDown)
	default:
		v.logger.Info("Leader changed", "reason", "another holder", "epoch", now.epoch(), "from", before.holder(), "to", now.holder())
	}
}
