package survey

import (
	"maps"
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

// recent is for how long a replica counts as seen now: nobody who knows it looks less often. hasty is how long one may
// take to answer that was seen longer ago. On many networks nothing refuses a connection to an address that nobody has
// any more.
const recent, hasty = 3 * lookEvery, 250 * time.Millisecond

// roster is the list of the replicas of this shard. The zero value is empty. Any goroutine may call its methods at any
// time.
type roster struct {
	mu     sync.Mutex
	byName map[string]target
	// left are the replicas that have ended in order. A process has a name of its own, so they do not come back.
	left map[string]departure
}

// departure is what this replica knows of one that has ended in order.
type departure struct {
	heard time.Time
	// first is set if the replica itself has said so, and not another one that was told.
	first bool
}

// note records whom a replica of this shard knows: the leader, and the standbys of a leader. It returns them. Those
// that have left are not recorded: what others know of them is out of date, or they hold a lease that they could not
// release.
func (r *roster) note(now time.Time, by status.Replica) []target {
	known := knownBy(now, by)
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.byName {
		if now.Sub(t.seen) > remembered {
			delete(r.byName, name)
		}
	}
	for _, t := range known {
		r.record(t)
	}
	return known
}

// knownBy returns the leader and the standbys of which a replica tells.
func knownBy(now time.Time, by status.Replica) (known []target) {
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
	return known
}

// answered records that a replica has answered.
func (r *roster) answered(now time.Time, name, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(target{name, url, now})
}

// record needs mu.
func (r *roster) record(t target) {
	if _, left := r.left[t.name]; left {
		return
	}
	if r.byName == nil {
		r.byName = map[string]target{}
	}
	if _, ok := r.byName[t.name]; ok || len(r.byName) < mostReplicas {
		r.byName[t.name] = t
	}
}

// leave records that replicas have ended in order. first: they have said so themselves. Others are told of these only:
// two replicas that told each other what they were told would never forget.
func (r *roster) leave(now time.Time, first bool, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDeparted(now)
	if r.left == nil {
		r.left = map[string]departure{}
	}
	for _, name := range names {
		delete(r.byName, name)
		known, ok := r.left[name]
		if isNews := !ok || first && !known.first; isNews && (ok || len(r.left) < mostReplicas) {
			r.left[name] = departure{now, first}
		}
	}
}

// gone returns the replicas that have ended in order, for as long as others might remember them, ordered by name.
func (r *roster) gone(now time.Time) []string {
	return r.departed(now, func(departure) bool { return true })
}

// tellable returns those of gone that others are told of.
func (r *roster) tellable(now time.Time) []string {
	return r.departed(now, func(d departure) bool { return d.first })
}

func (r *roster) departed(now time.Time, which func(departure) bool) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDeparted(now)
	for name, d := range r.left {
		if which(d) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// forgetDeparted needs mu.
func (r *roster) forgetDeparted(now time.Time) {
	maps.DeleteFunc(r.left, func(_ string, d departure) bool { return now.Sub(d.heard) > remembered })
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
