package doctor

import (
	"context"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/metrics"
	"github.com/regent-project/regent/pkg/server/status"
)

// TopClusters returns a row for each logical cluster that was asked for anything in the interval, on all replicas
// together, and one for each replica that cannot be asked. answered is how many replicas were asked.
func TopClusters(ctx context.Context, client *ask.Client, of status.Installation, interval time.Duration) (rows []metrics.Row, answered int) {
	type answer struct {
		counted metrics.Counted
		fault   metrics.Row
	}
	var all []metrics.Counted
	for _, a := range each(of, func(shard string, r status.Replica) (a answer) {
		a.fault = metrics.Row{Shard: shard, Replica: r.Name, State: r.Election.State, Fault: r.Fault}
		if r.Fault != "" {
			return a
		}
		var err error
		a.counted.Before, a.counted.After, err = twice(ctx, interval, func() (status.Top, error) { return client.Top(ctx, of, r) })
		if err != nil {
			a.fault.Fault = err.Error()
		}
		return a
	}) {
		if a.fault.Fault != "" {
			rows = append(rows, a.fault)
			continue
		}
		all = append(all, a.counted)
	}
	return append(rows, metrics.OfClusters(all)...), len(all)
}
