package fairness

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// mostCounted is how many logical clusters a Tally knows at a time.
	mostCounted = 256
	// halfLife is after how long a request counts half when it is decided whom to forget.
	halfLife = 10 * time.Second
)

// Counts are what was asked for in a logical cluster.
type Counts struct {
	// Cluster is its name, and Since when it was counted first. What it asked for before was forgotten.
	Cluster string
	Since   time.Time
	// Requests have been answered, Writes among them. Refused are writes that were answered with 403, 412, 422 or
	// 429, Failed requests with 5xx, and TooMany requests with 429. Held is how long places were taken, all places
	// added up.
	Requests, Writes, Refused, Failed, TooMany uint64
	Held                                       time.Duration
}

// Answer is one request that was answered, with which HTTP status. Write says that it was to change something.
type Answer struct {
	Status int
	Write  bool
}

func (c *Counts) add(a Answer) {
	c.Requests++
	if a.Write {
		c.Writes++
		switch a.Status {
		case 403, 412, 422, 429:
			c.Refused++
		}
	}
	switch {
	case a.Status == 429:
		c.TooMany++
	case a.Status >= 500:
		c.Failed++
	}
}

// Tally counts what logical clusters ask for. There may be 100,000: it knows the busiest, and the sum of all. A cluster
// that it does not know takes the place of the one that asked for the least lately, and inherits its rank, but not its
// counts (Metwally and others, "Efficient computation of frequent and top-k elements", 2005). So a cluster that has
// more than a 256th of all requests is always known. Make it with NewTally. All methods may be called at any time on
// any goroutine.
type Tally struct {
	mu     sync.Mutex
	at     map[string]int // by Cluster: the index in counts and ranks
	counts []Counts
	// ranks are apart from counts, so that to look through all of them is cheap.
	ranks []uint32
	// floor: no rank is less. hand is where to look for a rank that is as low.
	floor uint32
	hand  int
	all   Counts
	fade  time.Time // when the ranks are next to be halved
}

// NewTally returns a Tally that knows no cluster.
func NewTally() *Tally {
	return &Tally{at: make(map[string]int, mostCounted), counts: make([]Counts, 0, mostCounted), ranks: make([]uint32, 0, mostCounted)}
}

// Add counts a request of a cluster.
func (t *Tally) Add(cluster string, now time.Time, a Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fadeAt(now)
	t.all.add(a)
	i, known := t.at[cluster]
	if !known {
		i = t.place(cluster, now)
	}
	t.ranks[i]++
	t.counts[i].add(a)
}

// Hold counts how long a request has held its places, for each of them.
func (t *Tally) Hold(cluster string, held time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.Held += held
	if i, known := t.at[cluster]; known {
		t.counts[i].Held += held
	}
}

// Read returns what is known of the busiest clusters, in no order, and of all together.
func (t *Tally) Read() (busiest []Counts, all Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(busiest, t.counts...), t.all
}

// place makes a cluster known, and returns its index. The caller holds mu.
func (t *Tally) place(cluster string, now time.Time) int {
	i := len(t.counts)
	if i < mostCounted {
		t.counts, t.ranks = append(t.counts, Counts{}), append(t.ranks, 0)
	} else {
		i = t.least()
		delete(t.at, t.counts[i].Cluster)
	}
	name := strings.Clone(cluster) // it may be a part of a long URL
	t.at[name], t.counts[i] = i, Counts{Cluster: name, Since: now}
	return i
}

// least returns the index of a cluster with the least rank. It goes on where it stopped last time: in a flood of
// clusters that nobody knows, those behind it have just been placed. The caller holds mu.
func (t *Tally) least() int {
	for {
		for range t.ranks {
			i := t.hand
			t.hand = (t.hand + 1) % len(t.ranks)
			if t.ranks[i] <= t.floor {
				return i
			}
		}
		t.floor = slices.Min(t.ranks)
	}
}

// fadeAt halves all ranks if it is time. The caller holds mu.
func (t *Tally) fadeAt(now time.Time) {
	if now.Before(t.fade) {
		return
	}
	t.fade = now.Add(halfLife)
	for i := range t.ranks {
		t.ranks[i] /= 2
	}
	t.floor /= 2
}
