package electiontest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Store keeps one Lease. Its exported methods act for processes that are not under test: they always succeed, at once.
// Of returns the Stores of Leases with other names.
type Store struct {
	name string

	othersMu   sync.Mutex
	others     map[string]*Store
	candidates *Candidates
	electing   atomic.Bool

	log *log // of all Leases of the namespace

	mu       sync.Mutex
	uids     int
	lease    *coordinationv1.Lease // nil: there is none
	history  []Change
	grown    chan struct{} // closed at the next change
	fenced   bool
	restored chan struct{} // closed when the store is restored
	bumped   int64         // watches from an earlier revision are too old
}

// Change is one committed write.
type Change struct {
	Type     watch.EventType
	At       time.Time
	Revision int64
	Lease    *coordinationv1.Lease // as written; for a deletion, as it was before
}

// Holder returns the holder identity that the change left on the Lease.
func (c Change) Holder() string {
	if c.Type == watch.Deleted {
		return ""
	}
	return ptr.Deref(c.Lease.Spec.HolderIdentity, "")
}

// Epoch returns the Lease's leaseTransitions.
func (c Change) Epoch() int64 { return int64(ptr.Deref(c.Lease.Spec.LeaseTransitions, 0)) }

// NewStore returns a Store for the Lease of this name, which does not exist yet.
func NewStore(name string) *Store {
	return newStore(name, &log{revision: 1, grown: make(chan struct{})})
}

func newStore(name string, log *log) *Store {
	return &Store{name: name, log: log, grown: make(chan struct{}), restored: make(chan struct{})}
}

// Of returns the store of the Lease of this name, in the same namespace.
func (s *Store) Of(name string) *Store {
	s.othersMu.Lock()
	defer s.othersMu.Unlock()
	if name == s.name {
		return s
	}
	other := s.others[name]
	if other == nil {
		other = newStore(name, s.log)
		if s.others == nil {
			s.others = map[string]*Store{}
		}
		s.others[name] = other
	}
	return other
}

// Candidates returns the LeaseCandidates of the same namespace.
func (s *Store) Candidates() *Candidates {
	s.othersMu.Lock()
	defer s.othersMu.Unlock()
	if s.candidates == nil {
		s.candidates = newCandidates()
	}
	return s.candidates
}

// Others returns the names of the other Leases that exist, sorted.
func (s *Store) Others() []string {
	s.othersMu.Lock()
	defer s.othersMu.Unlock()
	var names []string
	for name, other := range s.others {
		if other.Lease() != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// selected returns the store of the Lease whose name the options select.
func (s *Store) selected(opts metav1.ListOptions) *Store {
	selector, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		panic(err)
	}
	if name, ok := selector.RequiresExactMatch(metav1.ObjectNameField); ok {
		return s.Of(name)
	}
	return s
}

// Lease returns a copy of the Lease; nil if there is none.
func (s *Store) Lease() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// Holder returns the current holder identity; empty if nobody holds the lease.
func (s *Store) Holder() string {
	lease := s.Lease()
	if lease == nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// History returns all changes so far, oldest first.
func (s *Store) History() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history[:len(s.history):len(s.history)]
}

// Take makes holder the holder of the Lease, in the next epoch. It creates the Lease if there is none, and leaves
// annotations as they are, like a patch.
func (s *Store) Take(holder string, duration time.Duration) {
	s.Edit(func(lease *coordinationv1.Lease) {
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity = &holder
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(duration / time.Second))
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	})
}

// Renew renews the lease for its current holder.
func (s *Store) Renew() {
	s.Edit(func(lease *coordinationv1.Lease) { lease.Spec.RenewTime = ptr.To(metav1.NowMicro()) })
}

// Free removes the holder from the Lease.
func (s *Store) Free() {
	s.Edit(func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
}

// Edit changes the Lease, whatever its revision. It creates the Lease if there is none.
func (s *Store) Edit(edit func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, event := s.lease.DeepCopy(), watch.Modified
	if lease == nil {
		lease, event = s.fresh(&coordinationv1.Lease{}), watch.Added
	}
	edit(lease)
	s.commit(event, lease)
}

// Delete deletes the Lease, if there is one.
func (s *Store) Delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		s.commit(watch.Deleted, s.lease.DeepCopy())
	}
}

// remove is a client's delete.
func (s *Store) remove(of *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lease == nil:
		return apierrors.NewNotFound(coordinationv1.Resource("leases"), s.name)
	case of != nil && of.UID != nil && *of.UID != s.lease.UID:
		return s.conflict("uid %s, want %s", s.lease.UID, *of.UID)
	case of != nil && of.ResourceVersion != nil && *of.ResourceVersion != s.lease.ResourceVersion:
		return s.conflict("revision %s, want %s", s.lease.ResourceVersion, *of.ResourceVersion)
	}
	s.commit(watch.Deleted, s.lease.DeepCopy())
	return nil
}

// create is a client's create.
func (s *Store) create(token fence.Token, lease *coordinationv1.Lease, dryRun bool) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fenced && !token.IsZero() && !s.shows(token):
		return nil, fence.NewRefusal("the term is over")
	case lease.Name != s.name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("this store keeps Lease %q, not %q", s.name, lease.Name))
	case lease.ResourceVersion != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case s.lease != nil:
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), s.name)
	}
	if dryRun {
		return lease, nil
	}
	return s.commit(watch.Added, s.fresh(lease)), nil
}

// Fence makes the store refuse writes with a token of another term than the one that the Lease shows, as Regent's API
// server does.
func (s *Store) Fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = true
}

// update is a client's update: a compare-and-swap on revision and uid.
func (s *Store) update(token fence.Token, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fenced && !token.IsZero() && !s.shows(token):
		return nil, fence.NewRefusal("the term is over")
	case s.lease == nil || lease.Name != s.name:
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), lease.Name)
	case lease.UID != "" && lease.UID != s.lease.UID:
		return nil, s.conflict("uid %s, want %s", s.lease.UID, lease.UID)
	case lease.ResourceVersion != s.lease.ResourceVersion: // this also refuses an update without a revision
		return nil, s.conflict("revision %s, want %q", s.lease.ResourceVersion, lease.ResourceVersion)
	}
	lease = lease.DeepCopy()
	lease.UID, lease.CreationTimestamp = s.lease.UID, s.lease.CreationTimestamp
	return s.commit(watch.Modified, lease), nil
}

// shows reports whether the Lease shows the token's term.
func (s *Store) shows(token fence.Token) bool {
	if s.lease == nil {
		return false
	}
	shown := fence.OfLease(s.lease)
	return shown.UID == token.UID && shown.Holder == token.Holder && shown.Epoch == token.Epoch
}

// list is a client's consistent read.
func (s *Store) list() *coordinationv1.LeaseList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: s.current()}}
	if s.lease != nil {
		list.Items = append(list.Items, *s.lease.DeepCopy())
	}
	return list
}

// listAll returns all Leases of the namespace.
func (s *Store) listAll() *coordinationv1.LeaseList {
	list := s.list()
	for _, name := range s.Others() {
		list.Items = append(list.Items, s.Of(name).list().Items...)
	}
	return list
}

// after returns the first change after revision. If there is none yet, it returns a channel that is closed at the next
// change.
func (s *Store) after(revision int64) (change *Change, growth <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.history {
		if s.history[i].Revision > revision {
			return &s.history[i], nil
		}
	}
	return nil, s.grown
}

func (s *Store) conflict(format string, args ...any) error {
	return apierrors.NewConflict(coordinationv1.Resource("leases"), s.name, fmt.Errorf(format, args...))
}

func (s *Store) fresh(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.uids++
	lease = lease.DeepCopy()
	lease.Name, lease.UID = s.name, types.UID("uid-"+s.name+"-"+strconv.Itoa(s.uids))
	lease.CreationTimestamp = metav1.Now()
	return lease
}

// commit makes lease the next revision. The caller holds mu, and must not use lease afterwards.
func (s *Store) commit(event watch.EventType, lease *coordinationv1.Lease) *coordinationv1.Lease {
	change := s.log.add(event, lease)
	s.lease = lease
	if event == watch.Deleted {
		s.lease = nil
	}
	s.history = append(s.history, change)
	close(s.grown)
	s.grown = make(chan struct{})
	return lease.DeepCopy()
}

func (s *Store) current() string { return s.log.current() }
