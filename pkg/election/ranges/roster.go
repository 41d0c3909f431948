package ranges

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
)

// roster is what this process knows of the others, from their presences. One goroutine may call its methods.
type roster struct {
	election string // the name of the election
	fallback time.Duration
	seen     map[string]sighting // by the name of the presence's Lease
}

// sighting is a presence as it was first seen in its present form, on this process's clock.
type sighting struct {
	revision string
	since    time.Time
}

// member is a process that is present.
type member struct {
	instance, replica string
	url               string // where it can be reached
	holder            string // its holder identity
	contact           election.Contact
	weight, wants     int       // wants is how many ranges it wants
	until             time.Time // when its presence expires, unless it is renewed
}

// look returns who is present, by holder identity.
func (r *roster) look(all map[string]*seenLease, now time.Time) map[string]member {
	seen, members := map[string]sighting{}, map[string]member{}
	for name, l := range all {
		p := l.said
		if p.Election != r.election || p.Holder == "" || !l.lives {
			continue
		}
		s := r.seen[name]
		if s.revision != l.ResourceVersion {
			s = sighting{l.ResourceVersion, now}
		}
		seen[name] = s
		lasts := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		if lasts == 0 {
			lasts = r.fallback
		}
		m := member{
			instance: p.Instance, replica: p.Replica, url: p.URL, holder: p.Holder, contact: election.Contact(p.Contact),
			weight: max(1, p.Weight), wants: max(1, p.Ranges), until: s.since.Add(lasts),
		}
		if now.Before(m.until) {
			members[m.holder] = m
		}
	}
	r.seen = seen
	return members
}
