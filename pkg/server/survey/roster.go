package survey

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// memory is for how long a replica is listed that nobody knows any more: it was killed, or has stopped.
	memory = 10 * time.Minute
	// mostReplicas is how many replicas of a shard are listed.
	mostReplicas = 256
)

// target is a replica of this shard, as others name it.
type target struct {
	name, url string
	lastSeen  time.Time
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
	// departures are the replicas that have ended in order. A process has a name of its own, so they do not come
	// back.
	departures map[string]departure
}

// departure is what this replica knows of one that has ended in order.
type departure struct {
	at time.Time
	// first is set if the replica itself has said so, and not another one that was told.
	first bool
}

// note records whom a replica of this shard knows: the leader, and the standbys of a leader. It returns them. Those
// that have left are not recorded: what others know of them is out of date, or they hold a lease that they could not
// release.
func (r *roster) note(now time.Time, by status.Replica) []target {
	others := knownBy(now, by)
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.byName {
		if now.Sub(t.lastSeen) > memory {
			delete(r.byName, name)
		}
	}
	for _, t := range others {
		r.record(t)
	}
	return others
}

// knownBy returns the leader and the standbys of which a replica tells.
func knownBy(now time.Time, by status.Replica) (others []target) {
	for _, e := range []*status.Election{&by.Election, by.Electing} {
		if e == nil {
			continue
		}
		if e.Leader != "" && e.Leader != by.Name {
			others = append(others, target{e.Leader, e.LeaderURL, now})
		}
		for _, s := range e.Standbys {
			if s.Replica != "" && s.Replica != by.Name {
				others = append(others, target{s.Replica, s.URL, now})
			}
		}
	}
	return others
}

// noteAnswer records that a replica has answered.
func (r *roster) noteAnswer(now time.Time, name, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(target{name, url, now})
}

// record needs mu.
func (r *roster) record(t target) {
	if _, left := r.departures[t.name]; left {
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
	if r.departures == nil {
		r.departures = map[string]departure{}
	}
	for _, name := range names {
		delete(r.byName, name)
		before, ok := r.departures[name]
		if isNews := !ok || first && !before.first; isNews && (ok || len(r.departures) < mostReplicas) {
			r.departures[name] = departure{now, first}
		}
	}
}

// departedNames returns the replicas that have ended in order, for as long as others might remember them, ordered by
// name.
func (r *roster) departedNames(now time.Time) []string {
	return r.departedIf(now, func(departure) bool { return true })
}

// tellable returns those of departedNames that others are told of.
func (r *roster) tellable(now time.Time) []string {
	return r.departedIf(now, func(d departure) bool { return d.first })
}

func (r *roster) departedIf(now time.Time, which func(departure) bool) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDeparted(now)
	for name, d := range r.departures {
		if which(d) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// forgetDeparted needs mu.
func (r *roster) forgetDeparted(now time.Time) {
	maps.DeleteFunc(r.departures, func(_ string, d departure) bool { return now.Sub(d.at) > memory })
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
	slices.SortFunc(out, func(a, b target) int { return b.lastSeen.Compare(a.lastSeen) })
	return out
}
