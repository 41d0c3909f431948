package survey

import (
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// remembered is for how long a replica is listed that nobody knows any more: it was killed, or has stopped.
	remembered = 10 * time.Minute
	// mostReplicas is how many replicas of a shard are listed.
	mostReplicas = 256
)

// target is a replica of this shard, as others name it.
type target struct {
	name, url string
	seen      time.Time
}

// recent is for how long a replica counts as seen now: nobody who knows it looks less often. hasty is how long one may take to answer that was
// seen longer ago. On many networks nothing refuses a connection to an address that nobody has any more.
const recent, hasty = 3 * lookEvery, 250 * time.Millisecond

// roster is the list of the replicas of this shard. The zero value is empty. Any goroutine may call its methods at any time.
type roster struct {
	mu     sync.Mutex
	byName map[string]target
}

// note records whom a replica of this shard knows: the leader, and the standbys of a leader. It returns them.
func (r *roster) note(now time.Time, by status.Replica) []target {
	var known []target
	for _, e := range []*status.Election{&by.Election, by.Electing} {
		if e == nil {
			continue
		}
		if e.Leader != "" && e.Leader != by.Name {
			known = append(known, target{e.Leader, e.LeaderURL, now})
		}
		for _, s := range e.Standbys {
			if s.Replica != "" && s.Replica != by.Name {
				known = append(known, target{s.Replica, s.URL, now})
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]target{}
	}
	for name, t := range r.byName {
		if now.Sub(t.seen) > remembered {
			delete(r.byName, name)
		}
	}
	for _, t := range known {
		if _, ok := r.byName[t.name]; ok || len(r.byName) < mostReplicas {
			r.byName[t.name] = t
		}
	}
	return known
}

// answered records that a replica has answered.
func (r *roster) answered(now time.Time, name, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.byName[name]; ok || len(r.byName) < mostReplicas {
		r.byName[name] = target{name, url, now}
	}
}

// forget removes a replica: another one has its address now.
func (r *roster) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, name)
}

// list returns the replicas, those that were seen last first.
func (r *roster) list() []target {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]target, 0, len(r.byName))
	for _, t := range r.byName {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b target) int { return b.seen.Compare(a.seen) })
	return out
}
