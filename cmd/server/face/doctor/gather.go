package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/metrics"
	"github.com/regent-project/regent/pkg/server/status"
)

// Gather measures all replicas of an installation for some time, all at once.
func Gather(ctx context.Context, client *ask.Client, of status.Installation, interval time.Duration) []Replica {
	return each(of, func(shard string, r status.Replica) Replica {
		x := Replica{Shard: shard, Name: r.Name, Fault: r.Fault}
		if x.Fault != "" {
			return x
		}
		var err error
		if x.Seen, err = client.Measure(ctx, of, r); err == nil {
			x.Metrics, err = Watch(ctx, client, of, r, interval)
		}
		if err != nil {
			x.Fault = err.Error()
		}
		return x
	})
}

// each calls do for all replicas at once, and returns what it returned, in their order.
func each[T any](of status.Installation, do func(shard string, r status.Replica) T) []T {
	var all []*T
	var asked sync.WaitGroup
	for _, s := range of.Shards {
		for _, r := range s.Replicas {
			one := new(T)
			all = append(all, one)
			asked.Go(func() { *one = do(s.Name, r) })
		}
	}
	asked.Wait()
	results := make([]T, len(all))
	for i, one := range all {
		results[i] = *one
	}
	return results
}

// Watch reads a replica's metrics twice, with a pause between.
func Watch(ctx context.Context, client *ask.Client, of status.Installation, r status.Replica, pause time.Duration) (i metrics.Interval, err error) {
	i.Before, i.After, err = twice(ctx, pause, func() (metrics.Reading, error) { return read(ctx, client, of, r) })
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

func read(ctx context.Context, client *ask.Client, of status.Installation, r status.Replica) (metrics.Reading, error) {
	text, err := client.Metrics(ctx, of, r)
	if err != nil {
		return metrics.Reading{}, err
	}
	return metrics.Read(text, time.Now())
}

// Top returns a row for each replica, and what each has been asked for.
func Top(ctx context.Context, client *ask.Client, of status.Installation, interval time.Duration) (rows []metrics.Row, all []metrics.Interval) {
	states := map[string]string{}
	for _, s := range of.Shards {
		for _, r := range s.Replicas {
			states[s.Name+"/"+r.Name] = r.Election.State
		}
	}
	watched := each(of, func(shard string, r status.Replica) Replica {
		x := Replica{Shard: shard, Name: r.Name, Fault: r.Fault}
		if x.Fault == "" {
			var err error
			if x.Metrics, err = Watch(ctx, client, of, r, interval); err != nil {
				x.Fault = err.Error()
			}
		}
		return x
	})
	for _, x := range watched {
		state := states[x.Shard+"/"+x.Name]
		if x.Fault != "" {
			rows = append(rows, metrics.Row{Shard: x.Shard, Replica: x.Name, State: state, Fault: x.Fault})
			continue
		}
		rows, all = append(rows, metrics.OfReplica(x.Shard, x.Name, state, x.Metrics)), append(all, x.Metrics)
	}
	return rows, all
}
