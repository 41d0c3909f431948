package ask

import (
	"context"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Replica is what was gathered of a replica.
type Replica struct {
	Shard, Name, Instance string
	// State is that of its election.
	State string
	// Fault says why this machine could not ask it.
	Fault string
	// Metrics and Counts are what it has measured of itself and counted of its clients' requests. Seen is what a
	// client sees of it.
	Metrics Interval
	Counts  Counts
	Seen    Measurement
}

// Counts are what a replica has counted at two times.
type Counts struct{ Before, After status.Top }

// Gather measures all replicas of an installation for some time: what they measure, and what a client sees of them.
func (c *Client) Gather(ctx context.Context, of status.Installation, interval time.Duration) []Replica {
	return each(of, func(r status.Replica, into *Replica) (err error) {
		if into.Seen, err = c.Measure(ctx, of, r); err == nil {
			into.Metrics, err = c.watch(ctx, of, r, interval)
		}
		return err
	})
}

// Watch reads the metrics of all replicas of an installation twice.
func (c *Client) Watch(ctx context.Context, of status.Installation, interval time.Duration) []Replica {
	return each(of, func(r status.Replica, into *Replica) (err error) {
		into.Metrics, err = c.watch(ctx, of, r, interval)
		return err
	})
}

// Count reads twice what all replicas of an installation have counted of their clients' requests.
func (c *Client) Count(ctx context.Context, of status.Installation, interval time.Duration) []Replica {
	return each(of, func(r status.Replica, into *Replica) (err error) {
		into.Counts.Before, into.Counts.After, err = twice(ctx, interval, func() (status.Top, error) { return c.Top(ctx, of, r) })
		return err
	})
}

// each calls do for all replicas that answer, at once, and returns what it filled in, in their order.
func each(of status.Installation, do func(r status.Replica, into *Replica) error) []Replica {
	var all []*Replica
	var running sync.WaitGroup
	for _, s := range of.Shards {
		for _, r := range s.Replicas {
			one := &Replica{Shard: s.Name, Name: r.Name, Instance: r.Instance, State: r.Election.State, Fault: r.Fault}
			all = append(all, one)
			if one.Fault != "" {
				continue
			}
			running.Go(func() {
				if err := do(r, one); err != nil {
					one.Fault = err.Error()
				}
			})
		}
	}
	running.Wait()
	results := make([]Replica, len(all))
	for i, one := range all {
		results[i] = *one
	}
	return results
}

func (c *Client) watch(ctx context.Context, of status.Installation, r status.Replica, pause time.Duration) (i Interval, err error) {
	i.Before, i.After, err = twice(ctx, pause, func() (Reading, error) {
		text, err := c.Metrics(ctx, of, r)
		if err != nil {
			return Reading{}, err
		}
		return ReadMetrics(text, time.Now())
	})
	return i, err
}

// twice reads, waits and reads again.
func twice[T any](ctx context.Context, pause time.Duration, read func() (T, error)) (before, after T, err error) {
	if before, err = read(); err != nil {
		return before, after, err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return before, after, context.Cause(ctx)
	case <-timer.C:
	}
	after, err = read()
	return before, after, err
}
