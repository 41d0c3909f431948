package loop

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// lane is where a key waits.
type lane int

const (
	// fresh keys are of what has just happened.
	fresh lane = iota
	// swept keys are what the sweep has found, and nobody waits for in particular.
	swept
)

// sweptShare: while fresh keys wait, one of so many keys that are taken is a swept one, so that the sweep ends.
const sweptShare = 8

// lanes orders the keys of a client-go work queue, which calls Touch, Push, Len and Pop under its own lock. It does not
// starve the swept keys, but no more than limit of them are worked on at a time: the other workers wait for fresh ones.
//
// A key is in one lane. Whoever adds it says first, by want, which lane that is. A swept key that becomes fresh changes lanes.
type lanes[K comparable] struct {
	mu    sync.Mutex
	limit int
	// wanted has the lanes of keys that are about to be queued. A key without one is fresh.
	wanted map[K]lane
	// queued has the lanes of the keys in the queue.
	queued map[K]lane
	// order has the keys of each lane in the order of their arrival, and some that have left.
	order [swept + 1][]K
	// count is the number of keys in each lane.
	count [swept + 1]int
	// working has the lanes of the keys that are being worked on, busy their number in each lane.
	working map[K]lane
	busy    [swept + 1]int
	// returned counts the keys of each lane that have been worked on.
	returned [swept + 1]uint64
	// turns counts the fresh keys that were taken while swept ones waited.
	turns int
}

func newLanes[K comparable](limit int) *lanes[K] {
	return &lanes[K]{limit: limit, wanted: map[K]lane{}, queued: map[K]lane{}, working: map[K]lane{}}
}

// want says which lane a key is for that is added to the queue next. A key that is wanted fresh stays so.
func (l *lanes[K]) want(k K, in lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.wanted[k]; !ok || in == fresh {
		l.wanted[k] = in
	}
}

// Push implements workqueue.Queue: it adds a key that is not queued.
func (l *lanes[K]) Push(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(k, l.wanted[k])
	delete(l.wanted, k)
}

// Touch implements workqueue.Queue: a key is added that is queued already.
func (l *lanes[K]) Touch(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.wanted[k]
	delete(l.wanted, k)
	if ok && in == fresh && l.queued[k] == swept {
		l.count[swept]--
		l.push(k, fresh)
	}
}

func (l *lanes[K]) push(k K, in lane) {
	l.queued[k] = in
	l.order[in] = append(l.order[in], k)
	l.count[in]++
}

// Len implements workqueue.Queue: it returns how many keys may be taken now.
func (l *lanes[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[swept] >= l.limit {
		return l.count[fresh]
	}
	return l.count[fresh] + l.count[swept]
}

// Pop implements workqueue.Queue: it takes a key. There must be one that may be taken.
func (l *lanes[K]) Pop() K {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := fresh
	if l.count[swept] > 0 && l.busy[swept] < l.limit {
		if l.turns++; l.count[fresh] == 0 || l.turns >= sweptShare {
			from, l.turns = swept, 0
		}
	}
	for {
		k := l.order[from][0]
		l.order[from] = l.order[from][1:]
		if in, ok := l.queued[k]; !ok || in != from {
			continue // it has changed lanes
		}
		delete(l.queued, k)
		l.count[from]--
		l.working[k] = from
		l.busy[from]++
		return k
	}
}

// of returns the lane from which a key was taken that is being worked on.
func (l *lanes[K]) of(k K) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.working[k]
}

// done says that a key is not worked on any more, and returns the lane that it was taken from. It must be called before the
// queue's Done: the worker that asks the queue next may then take a swept key.
func (l *lanes[K]) done(k K) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.working[k]
	delete(l.working, k)
	l.busy[from]--
	l.returned[from]++
	return from
}

// unlimit lets any number of swept keys be taken, to empty the queue.
func (l *lanes[K]) unlimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = l.busy[swept] + l.count[swept] + 1
}

// progress returns, for each lane at one moment, how many keys are queued or being worked on, and how many have been.
func (l *lanes[K]) progress() (pending [swept + 1]int, returned [swept + 1]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for in := range pending {
		pending[in] = l.count[in] + l.busy[in]
	}
	return pending, l.returned
}

var _ workqueue.Queue[int] = (*lanes[int])(nil)
