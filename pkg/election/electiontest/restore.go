package electiontest

import (
	"slices"
	"strconv"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/watch"
)

// Restore puts all Leases and LeaseCandidates of the namespace back to how they were at a time, as the restore of an
// etcd from its backup does. What came later never was, and watches end. Revisions go on from those of that time, so
// that a revision comes again with another content, and a watch from a later revision brings nothing until there are
// such again. With a bump (etcdutl snapshot restore --bump-revision --mark-compacted) they go on that much higher
// instead, and a watch from an earlier revision is answered with "too old resource version".
func (s *Store) Restore(to time.Time, bump int64) {
	s.othersMu.Lock()
	stores, candidates := []*Store{s}, s.candidates
	for _, other := range s.others {
		stores = append(stores, other)
	}
	s.othersMu.Unlock()
	var bumped int64 // with a bump: watches from an earlier revision are too old
	if now := s.log.restore(to, bump); bump > 0 {
		bumped = now
	}
	for _, store := range stores {
		store.restore(to, bumped)
	}
	if candidates != nil {
		candidates.restore(to, bump)
	}
}

// restore does it for one Lease. Uids of what is made later are others than those of what was made and is lost.
func (s *Store) restore(to time.Time, bumped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := slices.IndexFunc(s.history, func(c Change) bool { return c.At.After(to) })
	if kept < 0 {
		kept = len(s.history)
	}
	s.history, s.lease = slices.Clone(s.history[:kept]), nil
	if kept > 0 {
		if last := s.history[kept-1]; last.Type != watch.Deleted {
			s.lease = last.Lease.DeepCopy()
		}
	}
	s.bumped = max(s.bumped, bumped)
	close(s.restored)
	s.restored = make(chan struct{})
}

// watched returns a channel that is closed when the store is restored, and whether a watch from a revision is too old.
func (s *Store) watched(from int64) (restored <-chan struct{}, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restored, from < s.bumped
}

// restore does what Store.Restore does.
func (s *Candidates) restore(to time.Time, bump int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := slices.IndexFunc(s.history, func(c candidateChange) bool { return c.at.After(to) })
	if kept < 0 {
		kept = len(s.history)
	}
	s.history, s.objects, s.revision = slices.Clone(s.history[:kept]), map[string]*coordinationv1beta1.LeaseCandidate{}, 1
	for _, c := range s.history {
		object := c.Object.(*coordinationv1beta1.LeaseCandidate)
		if s.revision = c.revision; c.Type == watch.Deleted {
			delete(s.objects, object.Name)
			continue
		}
		s.objects[object.Name] = object.DeepCopy()
	}
	if bump > 0 {
		s.revision += bump
		s.bumped = s.revision
	}
	s.made++
	close(s.restored)
	s.restored = make(chan struct{})
}

// uid returns one that no other candidate has, also none that a restore has lost. The caller holds mu.
func (s *Candidates) uid() string {
	return "candidate-" + strconv.Itoa(s.made) + "-" + strconv.FormatInt(s.revision, 10)
}
