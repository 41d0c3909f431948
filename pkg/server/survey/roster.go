package survey

import (
	"cmp"
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

// target is a process of a replica of this shard, as others name it.
type target struct {
	name, instance, url string // the instance is empty if it runs an older version, or who names it does
	lastSeen            time.Time
}

// process is what a replica's process is known by: two of them may have one name, one after the other or at a time.
func (t target) process() string { return cmp.Or(t.instance, t.name) }

// is reports whether t is the process that has answered as r. Whoever knows no instance may still mean it.
func (t target) is(r status.Replica) bool {
	return t.process() == r.Process() || t.instance == "" && t.name == r.Name && (t.url == r.URL || t.url == "")
}

// leaderOf returns the process that an election names as the leader.
func leaderOf(e status.Election, now time.Time) target {
	return target{e.Leader, e.LeaderInstance, e.LeaderURL, now}
}

// recent is for how long a replica counts as seen now: nobody who knows it looks less often. hasty is how long one may
// take to answer that was seen longer ago. On many networks nothing refuses a connection to an address that nobody has
// any more.
const recent, hasty = 3 * lookEvery, 250 * time.Millisecond

// roster is the list of the replicas of this shard. The zero value is empty. Any goroutine may call its methods at any
// time.
type roster struct {
	mu        sync.Mutex
	byProcess map[string]target
	// departures are the processes that have ended in order. They do not come back: a replica that is started anew
	// has another process.
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
	for process, t := range r.byProcess {
		if now.Sub(t.lastSeen) > memory {
			delete(r.byProcess, process)
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
		others = append(others, leaderOf(*e, now))
		for _, s := range e.Standbys {
			others = append(others, target{s.Replica, s.Instance, s.URL, now})
		}
	}
	return slices.DeleteFunc(others, func(t target) bool { return t.name == "" || t.is(by) })
}

// noteAnswer records that a replica has answered.
func (r *roster) noteAnswer(now time.Time, by status.Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(target{by.Name, by.Instance, by.URL, now})
}

// record needs mu.
func (r *roster) record(t target) {
	process := t.process()
	if _, left := r.departures[process]; left {
		return
	}
	if r.byProcess == nil {
		r.byProcess = map[string]target{}
	}
	if _, ok := r.byProcess[process]; ok || len(r.byProcess) < mostReplicas {
		r.byProcess[process] = t
	}
}

// leave records that processes have ended in order. first: they have said so themselves. Others are told of these only:
// two replicas that told each other what they were told would never forget. The name of a replica stands for all its
// processes that are known by then.
func (r *roster) leave(now time.Time, first bool, processes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDeparted(now)
	if r.departures == nil {
		r.departures = map[string]departure{}
	}
	for _, process := range processes {
		before, ok := r.departures[process]
		isNews := !ok || first && !before.first
		maps.DeleteFunc(r.byProcess, func(key string, t target) bool { return key == process || isNews && t.name == process })
		if isNews && (ok || len(r.departures) < mostReplicas) {
			r.departures[process] = departure{now, first}
		}
	}
}

// departed returns the processes that have ended in order, for as long as others might remember them, ordered by name.
func (r *roster) departed(now time.Time) []string {
	return r.departedIf(now, func(departure) bool { return true })
}

// tellable returns those of departed that others are told of.
func (r *roster) tellable(now time.Time) []string {
	return r.departedIf(now, func(d departure) bool { return d.first })
}

func (r *roster) departedIf(now time.Time, which func(departure) bool) (processes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDeparted(now)
	for process, d := range r.departures {
		if which(d) {
			processes = append(processes, process)
		}
	}
	slices.Sort(processes)
	return processes
}

// forgetDeparted needs mu.
func (r *roster) forgetDeparted(now time.Time) {
	maps.DeleteFunc(r.departures, func(_ string, d departure) bool { return now.Sub(d.at) > memory })
}

// forget removes a process: another one has its address now.
func (r *roster) forget(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byProcess, process)
}

// sightings returns when each process was last seen.
func (r *roster) sightings() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]time.Time{}
	for process, t := range r.byProcess {
		out[process] = t.lastSeen
	}
	return out
}

// list returns the replicas, those that were seen last first.
func (r *roster) list() []target {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]target, 0, len(r.byProcess))
	for _, t := range r.byProcess {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b target) int { return b.lastSeen.Compare(a.lastSeen) })
	return out
}
