package electiontest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// Candidates keeps the LeaseCandidates of a namespace, as a Store keeps a Lease.
type Candidates struct {
	mu       sync.Mutex
	revision int64
	objects  map[string]*coordinationv1beta1.LeaseCandidate
	history  []candidateChange
	grown    chan struct{} // closed at the next change
	restored chan struct{} // closed when the store is restored
	bumped   int64         // watches from an earlier revision are too old
	made     int           // how often the store was restored
}

// candidateChange is one committed write.
type candidateChange struct {
	watch.Event
	at       time.Time
	revision int64
}

// newCandidates returns Candidates without any LeaseCandidate.
func newCandidates() *Candidates {
	return &Candidates{revision: 1, objects: map[string]*coordinationv1beta1.LeaseCandidate{}, grown: make(chan struct{}), restored: make(chan struct{})}
}

// Names returns the names of the candidates, the best one first: by the oldest emulation version, then by age.
func (s *Candidates) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*coordinationv1beta1.LeaseCandidate
	for _, c := range s.objects {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *coordinationv1beta1.LeaseCandidate) int {
		older, err := version.MustParseSemantic(a.Spec.EmulationVersion).Compare(b.Spec.EmulationVersion)
		if err != nil {
			panic(err)
		}
		return cmp.Or(older, cmp.Compare(a.Generation, b.Generation))
	})
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

// Ask writes a pingTime to the candidate of this name, from a clock that is ahead of the candidate's.
func (s *Candidates) Ask(name string, ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.objects[name].DeepCopy()
	c.Spec.PingTime = ptr.To(metav1.NewMicroTime(time.Now().Add(ahead)))
	s.commit(watch.Modified, c)
}

// HasAnswered reports whether the candidate of this name exists and owes no answer.
func (s *Candidates) HasAnswered(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.objects[name]
	return c != nil && (c.Spec.PingTime == nil || c.Spec.PingTime.Before(c.Spec.RenewTime))
}

// ask does what Ask does if the candidate exists, with the candidate's own clock.
func (s *Candidates) ask(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[name] == nil {
		return false
	}
	c := s.objects[name].DeepCopy()
	c.Spec.PingTime = ptr.To(metav1.NowMicro())
	s.commit(watch.Modified, c)
	return true
}

// Remove deletes the candidate of this name.
func (s *Candidates) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.objects[name]; c != nil {
		s.commit(watch.Deleted, c.DeepCopy())
	}
}

func (s *Candidates) commit(event watch.EventType, c *coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	s.revision++
	c.ResourceVersion = strconv.FormatInt(s.revision, 10)
	if event == watch.Added {
		c.UID, c.Generation = types.UID(s.uid()), s.revision
	}
	s.objects[c.Name] = c
	if event == watch.Deleted {
		delete(s.objects, c.Name)
	}
	s.history = append(s.history, candidateChange{watch.Event{Type: event, Object: c.DeepCopy()}, time.Now(), s.revision})
	close(s.grown)
	s.grown = make(chan struct{})
	return c.DeepCopy()
}

// CandidateClient is one replica's client of Candidates. It implements election.CandidateClient, with the faults of a
// Client, and where that has none with its own, as of a server that refuses candidates and serves Leases.
type CandidateClient struct {
	Faults
	client     *Client
	candidates *Candidates
}

// doOf makes one request of a candidate, with its fault.
func doOf[T any](ctx context.Context, c *CandidateClient, r Request, request func() (T, error)) (T, error) {
	fault, own := c.client.fault(r), c.fault(r)
	if fault == (Fault{}) {
		fault = own
	}
	return with(ctx, c.client, fault, request)
}

// List returns the candidate that the options select by its name, or all if they select none.
func (c *CandidateClient) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1beta1.LeaseCandidateList, error) {
	return doOf(ctx, c, List, func() (*coordinationv1beta1.LeaseCandidateList, error) {
		s := c.candidates
		s.mu.Lock()
		defer s.mu.Unlock()
		list := &coordinationv1beta1.LeaseCandidateList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.revision, 10)}}
		for name, object := range s.objects {
			if selected := nameOf(opts); selected == "" || selected == name {
				list.Items = append(list.Items, *object.DeepCopy())
			}
		}
		return list, nil
	})
}

// Create creates a candidate.
func (c *CandidateClient) Create(ctx context.Context, candidate *coordinationv1beta1.LeaseCandidate, _ metav1.CreateOptions) (*coordinationv1beta1.LeaseCandidate, error) {
	return doOf(ctx, c, Create, func() (*coordinationv1beta1.LeaseCandidate, error) {
		s := c.candidates
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.objects[candidate.Name] != nil {
			return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leasecandidates"), candidate.Name)
		}
		return s.commit(watch.Added, candidate.DeepCopy()), nil
	})
}

// Update updates a candidate, by a compare-and-swap on its revision.
func (c *CandidateClient) Update(ctx context.Context, candidate *coordinationv1beta1.LeaseCandidate, _ metav1.UpdateOptions) (*coordinationv1beta1.LeaseCandidate, error) {
	return doOf(ctx, c, Update, func() (*coordinationv1beta1.LeaseCandidate, error) {
		s := c.candidates
		s.mu.Lock()
		defer s.mu.Unlock()
		switch current := s.objects[candidate.Name]; {
		case current == nil:
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leasecandidates"), candidate.Name)
		case current.ResourceVersion != candidate.ResourceVersion:
			return nil, apierrors.NewConflict(coordinationv1.Resource("leasecandidates"), candidate.Name, fmt.Errorf("it has changed"))
		}
		return s.commit(watch.Modified, candidate.DeepCopy()), nil
	})
}

// Delete deletes a candidate.
func (c *CandidateClient) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	_, err := doOf(ctx, c, Delete, func() (any, error) {
		s := c.candidates
		s.mu.Lock()
		defer s.mu.Unlock()
		object := s.objects[name]
		if object == nil {
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leasecandidates"), name)
		}
		s.commit(watch.Deleted, object.DeepCopy())
		return nil, nil
	})
	return err
}

// Watch sends every change, after a revision, of the candidate that the options select by its name.
func (c *CandidateClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	revision, err := strconv.ParseInt(opts.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a watch needs a resourceVersion: %v", err))
	}
	return doOf(ctx, c, Watch, func() (watch.Interface, error) {
		ctx, cancel := context.WithCancel(ctx)
		w := &watching{events: make(chan watch.Event), cancel: cancel}
		go func() {
			defer close(w.events)
			c.tell(ctx, nameOf(opts), revision, w.events)
		}()
		return w, nil
	})
}

// tell sends every change of a candidate after revision, until ctx ends or the store is restored.
func (c *CandidateClient) tell(ctx context.Context, name string, revision int64, events chan<- watch.Event) {
	c.candidates.mu.Lock()
	restored, expired := c.candidates.restored, revision < c.candidates.bumped
	c.candidates.mu.Unlock()
	for {
		var to chan<- watch.Event
		next, grown := c.candidates.after(name, revision)
		if next.Object != nil || expired {
			to, grown = events, nil
		}
		if expired {
			next.Event = watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old resource version").ErrStatus}
		}
		select {
		case to <- next.Event:
			if revision = next.revision; expired {
				return
			}
		case <-grown:
		case <-restored:
			return
		case <-ctx.Done():
			return
		}
	}
}

// after returns the first change of a candidate after revision, and a channel that is closed at the next change of any.
func (s *Candidates) after(name string, revision int64) (candidateChange, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.history {
		if object, ok := c.Object.(*coordinationv1beta1.LeaseCandidate); ok && object.Name == name && c.revision > revision {
			return c, s.grown
		}
	}
	return candidateChange{}, s.grown
}

func nameOf(opts metav1.ListOptions) string {
	selector, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		panic(err)
	}
	name, _ := selector.RequiresExactMatch(metav1.ObjectNameField)
	return name
}

// Elect acts as an electing controller until ctx ends. Whenever nobody holds the lease, it names the best candidate. If
// the holder is not the best candidate, it asks the holder to make way.
//
// A candidate that held the lease when it became free or expired may be dead. So Elect asks that candidate, and if it
// is the best waits for its answer for leaverPatience. Without an answer it does not name that candidate. Only the
// first call of Elect has an effect.
func (s *Store) Elect(ctx context.Context) {
	candidates, held, left := s.Candidates(), "", leavers{}
	for first := s.electing.CompareAndSwap(false, true); first && ctx.Err() == nil; {
		candidates.mu.Lock()
		nominated := candidates.grown
		candidates.mu.Unlock()
		s.mu.Lock()
		changed := s.grown
		s.mu.Unlock()
		holder := s.Holder()
		if held != "" && holder == "" && candidates.ask(held) {
			left[held] = time.Now().Add(leaverPatience)
		}
		held = holder
		names, again := left.electable(candidates)
		// standbys may depose first, as they do with a real electing controller
		timer := time.NewTimer(max(min(again, s.elect(names)), 0) + time.Millisecond)
		select {
		case <-nominated:
		case <-changed:
		case <-timer.C:
			s.expire()
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// leaverPatience is how long Elect waits for an answer of the last holder.
const leaverPatience = 500 * time.Millisecond

// never is longer than any test.
const never = 1000 * time.Hour

// leavers are the candidates that have held the lease and not answered since, and until when Elect waits for each.
type leavers map[string]time.Time

// electable returns the names of the candidates that can be elected, the best one first. It returns none while Elect
// waits for one that may be better, and how much longer that takes.
func (l leavers) electable(candidates *Candidates) (names []string, again time.Duration) {
	for _, name := range candidates.Names() {
		until, left := l[name]
		switch {
		case !left:
			names = append(names, name)
		case candidates.HasAnswered(name):
			delete(l, name)
			names = append(names, name)
		case len(names) == 0 && time.Now().Before(until):
			return nil, time.Until(until)
		}
	}
	return names, never
}

// elect names or prefers a candidate if that is due now. It returns in what time the lease expires if nothing changes.
func (s *Store) elect(names []string) (expiry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := watch.Modified
	lease := s.lease.DeepCopy()
	if lease == nil {
		lease, event = s.fresh(&coordinationv1.Lease{}), watch.Added
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	switch best := append(names, "")[0]; {
	case holder == "" && best != "":
		var highest int64
		for _, change := range s.history {
			highest = max(highest, change.Epoch())
		}
		if highest == math.MaxInt32 { // a new Lease continues from its own epoch
			highest = int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
		}
		if highest == math.MaxInt32 {
			return never
		}
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &best, LeaseTransitions: ptr.To(int32(highest) + 1), LeaseDurationSeconds: ptr.To[int32](5),
			AcquireTime: &now, RenewTime: &now, Strategy: ptr.To(coordinationv1.OldestEmulationVersion),
		}
		s.commit(event, lease)
	case holder != "" && lease.Spec.Strategy != nil && best != "" && best != holder && ptr.Deref(lease.Spec.PreferredHolder, "") != best:
		lease.Spec.PreferredHolder = &best
		s.commit(watch.Modified, lease)
	}
	return expiryOf(lease)
}

// expiryOf returns in what time a lease expires that is not renewed.
func expiryOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.RenewTime == nil {
		return never
	}
	return time.Until(lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 5)) * time.Second))
}

// expire frees the lease if it has expired.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || ptr.Deref(s.lease.Spec.HolderIdentity, "") == "" || expiryOf(s.lease) > 0 {
		return
	}
	free := s.lease.DeepCopy()
	free.Spec.HolderIdentity = ptr.To("")
	s.commit(watch.Modified, free)
}
