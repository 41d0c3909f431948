package storage

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"
)

const (
	// lookInterval is how often etcd is asked for its revision, and lookPatience how long it may take.
	lookInterval, lookPatience = time.Second, time.Second
	// remembered is for how long revisions are remembered: longer than etcd keeps them.
	remembered = 15 * time.Minute
)

// ErrUnknownMoment is of a moment of which this process does not know the revision.
var ErrUnknownMoment = errors.New("this replica does not know which revision etcd had then")

// timeline has the revisions that etcd had in the last minutes, by the monotonic clock: etcd knows no times.
type timeline struct {
	mu      sync.Mutex
	moments []moment
}

type moment struct {
	at       time.Time
	revision int64
}

func (t *timeline) add(at time.Time, revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moments = append(t.moments, moment{at, revision})
	over := sort.Search(len(t.moments), func(i int) bool { return at.Sub(t.moments[i].at) <= remembered })
	if over > len(t.moments)/2 { // so that each is moved once
		t.moments = append([]moment(nil), t.moments[over:]...)
	}
}

// at returns the last revision that was seen by then.
func (t *timeline) at(then time.Time) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := sort.Search(len(t.moments), func(i int) bool { return t.moments[i].at.After(then) })
	switch {
	case n > 0:
		return t.moments[n-1].revision, nil
	case len(t.moments) == 0:
		return 0, ErrUnknownMoment
	}
	return 0, fmt.Errorf("%w: it knows those of the last %v", ErrUnknownMoment, time.Since(t.moments[0].at).Round(time.Second))
}

// FollowRevisions asks etcd for its revision each second, for RevisionAgo, until ctx ends.
func (c *Client) FollowRevisions(ctx context.Context) {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, lookPatience)
		revision, err := c.Revision(within)
		cancel()
		if err == nil { // others say that etcd does not answer
			c.timeline.add(time.Now(), revision)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// RevisionAgo returns the revision that etcd had so long ago, or a second before. An error wraps ErrUnknownMoment if
// this process does not know it. etcd may have the revision no more: see ErrCompacted.
func (c *Client) RevisionAgo(d time.Duration) (int64, error) {
	return c.timeline.at(time.Now().Add(-d))
}
