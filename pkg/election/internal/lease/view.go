package lease

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

// View collects what this process learns of the Lease: from the watch, from reads, and from the answers to its own
// writes. It orders news by revision, so an event that arrives after the answer to a later write changes nothing.
// (Epochs could not order news: a release or an edit by hand leaves the epoch as it is.) Any goroutine may call its
// methods.
type View struct {
	logger klog.Logger
	// ours reports whether an identity is one of this process.
	ours func(identity string) bool

	mu      sync.Mutex
	seen    Observation
	changed chan struct{} // closed at the next change
}

// NewView returns a View that has seen nothing. ours reports whether a holder identity is one of this process.
func NewView(logger klog.Logger, ours func(identity string) bool) *View {
	return &View{logger: logger, ours: ours, changed: make(chan struct{})}
}

// Latest returns what is known, and a channel that is closed when that changes.
func (v *View) Latest() (Observation, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen, v.changed
}

// See records the Lease at its own revision.
func (v *View) See(lease *coordinationv1.Lease) { v.take(lease, lease.ResourceVersion) }

// SeeList records the result of a read, and returns the Lease in it; nil if there is none.
func (v *View) SeeList(list *coordinationv1.LeaseList) *coordinationv1.Lease {
	lease, revision := in(list)
	v.take(lease, revision)
	return lease
}

// in returns the Lease in a list, and the revision at which it was seen.
func in(list *coordinationv1.LeaseList) (*coordinationv1.Lease, string) {
	if len(list.Items) == 0 {
		return nil, list.ResourceVersion
	}
	return &list.Items[0], list.Items[0].ResourceVersion
}

// seeRead does what SeeList does for a consistent read that was sent when known was the latest revision, and reports
// whether it was news. If the Lease is of an earlier revision, the store was restored from a backup: what this process
// has seen of it is no longer so, and no change is as new as that for a long time.
func (v *View) seeRead(list *coordinationv1.LeaseList, known string) (news bool) {
	lease, revision := in(list) // the list's own revision may be bumped, so that watches notice the restore
	order, err := resourceversion.CompareResourceVersion(revision, known)
	if known == "" || err != nil || order >= 0 {
		return v.take(lease, revision)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen.Revision != known {
		return false // a write of this process was answered meanwhile: the next read shows it
	}
	v.logger.Error(nil, "The store of the Lease is at an earlier revision than this process has seen: it was restored from a backup, or is another one. The election goes on from what it shows now",
		"revision", revision, "seen", known)
	v.become(v.seen.after(lease, revision, time.Now()))
	return true
}

// take records the Lease at revision; nil means that there is none. It reports whether that was news.
func (v *View) take(lease *coordinationv1.Lease, revision string) (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, news := v.seen.next(lease, revision, time.Now())
	if !news {
		v.seen = seen
		return false
	}
	v.become(seen)
	return true
}

// become makes seen what is known. The caller holds mu.
func (v *View) become(seen Observation) {
	v.report(v.seen, seen)
	v.seen = seen
	close(v.changed)
	v.changed = make(chan struct{})
}

// report logs a change of leader once, whatever the source of the news. The Elector logs its own terms itself.
func (v *View) report(before, now Observation) {
	was, is := before.signs(), now.signs()
	was.renewed, is.renewed = 0, 0
	switch {
	case before.IsKnown() && was == is:
	case now.Holder() != "" && v.ours(now.Holder()):
		v.logger.V(6).Info("Saw an identity of this process on the Lease", "epoch", now.Epoch(), "holder", now.Holder())
	case now.Lease == nil && before.IsKnown():
		v.logger.Info("Leader changed", "reason", "the Lease was deleted", "epoch", before.Epoch(), "from", before.Holder(), "to", "")
	case now.Lease == nil:
		v.logger.V(2).Info("There is no Lease yet")
	case now.Holder() == "" && v.ours(before.Holder()):
		v.logger.V(6).Info("Saw a release by this process on the Lease", "epoch", now.Epoch())
	case now.Holder() == "":
		v.logger.Info("Leader changed", "reason", "the lease is free", "epoch", now.Epoch(), "from", before.Holder(), "to", "",
			"lastStepDown", now.Presence().LastStepDown)
	default:
		v.logger.Info("Leader changed", "reason", "another holder", "epoch", now.Epoch(), "from", before.Holder(), "to", now.Holder())
	}
}
