package loop

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// fair has the keys of one lane, by group. Groups take turns by the time that their keys have cost, however many keys
// they have: start-time fair queueing (Goyal, Vin, Cheng, 1996). What a key costs is known when it is done, so what
// the last one has cost is charged until then. Whoever comes after a pause has saved up nothing.
type fair[K comparable] struct {
	groups map[string]*group[K] // that have keys, that are worked on, or that have cost more than others yet
	ready  byCost[K]            // that have keys
	rested byCost[K]            // that have none, and are not worked on
	active map[*group[K]]bool   // that are worked on: no more than there are workers
	count  int                  // of keys that wait
	busy   int                  // of keys that are worked on
	turns  int
	clock  time.Duration // what the group had cost that was served last
	latest time.Duration // what the dearest group has cost
}

// group is what keys are charged to.
type group[K comparable] struct {
	name  string
	keys  []K // in the order of their arrival, with some that have left
	count int // of those that wait
	busy  int // of those that are worked on
	cost  time.Duration
	last  time.Duration // what its last key has cost
	turn  int           // those of the same cost are served in the order in which they came
	at    int           // the place in ready or rested; -1: it is in neither
}

// leastCost is charged for each key, so that those that cost nothing take turns, too.
const leastCost = 100 * time.Microsecond

func newFair[K comparable]() *fair[K] {
	return &fair[K]{groups: map[string]*group[K]{}, active: map[*group[K]]bool{}}
}

// push adds a key.
func (f *fair[K]) push(name string, k K) {
	g := f.groups[name]
	if g == nil {
		g = &group[K]{name: name, at: -1}
		f.groups[name] = g
	}
	g.keys = append(g.keys, k)
	f.recount(g, 1)
}

// leave says that a key of a group does not wait here any more.
func (f *fair[K]) leave(name string) { f.recount(f.groups[name], -1) }

// recount moves a group to where it belongs after keys of it have come or left.
func (f *fair[K]) recount(g *group[K], n int) {
	f.count += n
	g.count += n
	switch {
	case g.count > 0 && g.count == n: // the first
		f.rested.remove(g)
		g.cost = max(g.cost, f.clock)
		f.turns++
		g.turn = f.turns
		heap.Push(&f.ready, g)
	case g.count == 0:
		f.ready.remove(g)
		g.keys = nil
		f.rest(g)
	}
}

// rest forgets a group that has no keys, and has not cost more than those that are served.
func (f *fair[K]) rest(g *group[K]) {
	if f.count+f.busy == 0 {
		f.clock = f.latest
	}
	if g.count+g.busy == 0 && g.at < 0 {
		heap.Push(&f.rested, g)
	}
	for f.rested.Len() > 0 && f.rested[0].cost <= f.clock {
		delete(f.groups, heap.Pop(&f.rested).(*group[K]).name)
	}
}

// takable returns how many keys may be taken, of all that wait. allowed says whether a group may have one more worker
// than it has; nil: it may.
func (f *fair[K]) takable(allowed func(busy int) bool) int {
	n := f.count
	for g := range f.active {
		if allowed != nil && !allowed(g.busy) {
			n -= g.count
		}
	}
	return n
}

// pop takes the key whose turn it is. There must be one that may be taken. left says which keys have left meanwhile.
func (f *fair[K]) pop(allowed func(busy int) bool, left func(K) bool) (k K, of *group[K], charged time.Duration) {
	var aside []*group[K]
	for of == nil {
		g := heap.Pop(&f.ready).(*group[K])
		aside = append(aside, g)
		if g.busy == 0 || allowed == nil || allowed(g.busy) {
			of = g
		}
	}
	for _, g := range aside {
		heap.Push(&f.ready, g)
	}
	f.clock = max(f.clock, of.cost)
	for {
		k = of.keys[0]
		of.keys = of.keys[1:]
		if !left(k) {
			break
		}
	}
	charged = max(of.last, leastCost)
	f.busy++
	of.busy++
	f.active[of] = true
	f.charge(of, charged)
	f.recount(of, -1)
	return k, of, charged
}

// finish takes back a key that has cost some time, and for which something was charged already.
func (f *fair[K]) finish(g *group[K], took, charged time.Duration) {
	took = max(took, leastCost)
	g.last = took
	f.busy--
	if g.busy--; g.busy == 0 {
		delete(f.active, g)
	}
	f.charge(g, took-charged)
	f.rest(g)
}

// only returns the name of the group that has keys, if there is one only.
func (f *fair[K]) only() string {
	if len(f.active)+len(f.ready) > 2 {
		return ""
	}
	var one *group[K]
	for _, g := range append(slices.Collect(maps.Keys(f.active)), f.ready...) {
		if one != nil && g != one {
			return ""
		}
		one = g
	}
	if one == nil {
		return ""
	}
	return one.name
}

func (f *fair[K]) charge(g *group[K], cost time.Duration) {
	g.cost += cost
	f.latest = max(f.latest, g.cost)
	if g.count > 0 && g.at >= 0 {
		heap.Fix(&f.ready, g.at)
	}
}

// byCost is a heap of groups: what has cost least is first.
type byCost[K comparable] []*group[K]

// Len implements heap.Interface.
func (h byCost[K]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h byCost[K]) Less(i, j int) bool {
	return h[i].cost < h[j].cost || h[i].cost == h[j].cost && h[i].turn < h[j].turn
}

// Swap implements heap.Interface.
func (h byCost[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *byCost[K]) Push(g any) {
	g.(*group[K]).at = len(*h)
	*h = append(*h, g.(*group[K]))
}

// Pop implements heap.Interface.
func (h *byCost[K]) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.at = -1
	return g
}

// remove takes a group out, if it is in.
func (h *byCost[K]) remove(g *group[K]) {
	if g.at >= 0 && g.at < len(*h) && (*h)[g.at] == g {
		heap.Remove(h, g.at)
	}
}
