package loop

import (
	"math"
	"sync"
	"time"

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
// A key is in one lane. Whoever adds it says first, by want, which lane that is. A swept key that becomes fresh
// changes lanes.
//
// In each lane the groups of keys take turns (fair), and each has half of the workers at most that the others leave:
// whatever hangs for one of them, there is a worker for the next.
type lanes[K comparable] struct {
	mu    sync.Mutex
	limit int
	// workers is how many keys are worked on at a time. group returns what a key is charged to; nil: nobody tells
	// keys apart.
	workers int
	group   func(K) string
	// wanted has the lanes of keys that are about to be queued. A key without one is fresh.
	wanted map[K]lane
	// queued has the lanes of the keys in the queue.
	queued map[K]lane
	// order has the keys of each lane.
	order [swept + 1]*fair[K]
	// working has the keys that are being worked on.
	working map[K]job[K]
	// returned counts the keys of each lane that have been worked on.
	returned [swept + 1]uint64
	// turns counts the fresh keys that were taken while swept ones waited.
	turns int
}

// job is a key that is being worked on.
type job[K comparable] struct {
	from    lane
	of      *group[K]
	charged time.Duration
	since   time.Time
}

func newLanes[K comparable](workers, limit int) *lanes[K] {
	return &lanes[K]{
		workers: workers, limit: limit, wanted: map[K]lane{}, queued: map[K]lane{}, working: map[K]job[K]{},
		order: [swept + 1]*fair[K]{newFair[K](), newFair[K]()},
	}
}

func (l *lanes[K]) groupOf(k K) string {
	if l.group == nil {
		return ""
	}
	return l.group(k)
}

// allowed returns whether a group may have one more worker than it has, in a lane. Nil: it may.
func (l *lanes[K]) allowed(in lane) func(busy int) bool {
	if l.group == nil {
		return nil
	}
	places := l.workers
	if in == swept {
		places = l.limit
	}
	return func(busy int) bool {
		left := places - (l.order[in].busy - busy)
		return busy < max(1, (left+1)/2)
	}
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
		l.order[swept].leave(l.groupOf(k))
		l.push(k, fresh)
	}
}

func (l *lanes[K]) push(k K, in lane) {
	l.queued[k] = in
	l.order[in].push(l.groupOf(k), k)
}

// Len implements workqueue.Queue: it returns how many keys may be taken now.
func (l *lanes[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order[fresh].takable(l.allowed(fresh)) + l.takableSwept()
}

func (l *lanes[K]) takableSwept() int {
	if l.order[swept].busy >= l.limit {
		return 0
	}
	return l.order[swept].takable(l.allowed(swept))
}

// Pop implements workqueue.Queue: it takes a key. There must be one that may be taken.
func (l *lanes[K]) Pop() K {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := fresh
	if l.takableSwept() > 0 {
		if l.turns++; l.turns >= sweptShare || l.order[fresh].takable(l.allowed(fresh)) == 0 {
			from, l.turns = swept, 0
		}
	}
	k, of, charged := l.order[from].pop(l.allowed(from), func(k K) bool {
		in, ok := l.queued[k]
		return !ok || in != from // it has changed lanes
	})
	delete(l.queued, k)
	l.working[k] = job[K]{from, of, charged, time.Now()}
	return k
}

// of returns the lane from which a key was taken that is being worked on.
func (l *lanes[K]) of(k K) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.working[k].from
}

// finish says that a key is not worked on any more, and returns the lane that it was taken from. It must be called
// before the queue's Done: the worker that asks the queue next may then take a swept key.
func (l *lanes[K]) finish(k K) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.working[k]
	delete(l.working, k)
	l.order[t.from].finish(t.of, time.Since(t.since), t.charged)
	l.returned[t.from]++
	return t.from
}

// unlimit lets any number of keys be taken, to empty the queue.
func (l *lanes[K]) unlimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers, l.limit = math.MaxInt32, math.MaxInt32
}

// progress returns, for each lane at one moment, how many keys are queued or being worked on, and how many have been.
func (l *lanes[K]) progress() (pending [swept + 1]int, returned [swept + 1]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for in, of := range l.order {
		pending[in] = of.count + of.busy
	}
	return pending, l.returned
}

// only returns the group to which all keys of a lane belong, those that are queued and those that are worked on. Empty:
// there are several, or no keys, or nobody tells keys apart.
func (l *lanes[K]) only(in lane) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order[in].only()
}

var _ workqueue.Queue[int] = (*lanes[int])(nil)
