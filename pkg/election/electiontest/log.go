package electiontest

import (
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// log has the changes of all Leases of a namespace, which share their revisions.
type log struct {
	mu       sync.Mutex
	revision int64
	changes  []Change
	grown    chan struct{} // closed at the next change
}

func (l *log) current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strconv.FormatInt(l.revision, 10)
}

// add makes lease the next revision, and returns the change.
func (l *log) add(event watch.EventType, lease *coordinationv1.Lease) Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision++
	lease.ResourceVersion = strconv.FormatInt(l.revision, 10)
	change := Change{Type: event, At: time.Now(), Revision: l.revision, Lease: lease.DeepCopy()}
	l.changes = append(l.changes, change)
	close(l.grown)
	l.grown = make(chan struct{})
	return change
}

// after returns the first change after revision. If there is none yet, it returns a channel that is closed at the next
// change.
func (l *log) after(revision int64) (change *Change, growth <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.changes, revision+1, func(c Change, r int64) int { return int(c.Revision - r) })
	if i < len(l.changes) {
		return &l.changes[i], nil
	}
	return nil, l.grown
}

// restore drops what came after a time, and returns the revision with which the namespace goes on.
func (l *log) restore(to time.Time, bump int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if later := slices.IndexFunc(l.changes, func(c Change) bool { return c.At.After(to) }); later >= 0 {
		l.changes = slices.Clone(l.changes[:later])
	}
	l.revision = 1
	if n := len(l.changes); n > 0 {
		l.revision = l.changes[n-1].Revision
	}
	l.revision += bump
	return l.revision
}
