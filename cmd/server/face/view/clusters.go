package view

import (
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/status"
)

// Others is the name of the row with what logical clusters were asked for that are not among the busiest of their
// replica.
const Others = "(others)"

// rowsOfClusters returns a row for each logical cluster in which anything was asked for on any of the replicas, and one
// for those that are not among the busiest.
func rowsOfClusters(replicas []ask.Replica) (rows []Row) {
	by := map[string]*Row{}
	of := func(name, path string) *Row {
		r := by[name]
		if r == nil {
			r = &Row{Cluster: name}
			by[name] = r
		}
		if path != "" { // not every replica may know it
			r.Path = path
		}
		return r
	}
	for _, replica := range replicas {
		c := replica.Counts
		others, lasted := growth(c), c.After.Observed.Sub(c.Before.Observed)
		for _, now := range c.After.Clusters {
			grown := minus(now.RequestCounts, countBefore(c, now))
			of(now.Cluster, now.Path).add(grown, lasted)
			others = minus(others, grown)
		}
		of(Others, "").add(others, lasted)
	}
	for _, r := range by {
		if r.Requests > 0 || r.Places > 0 {
			rows = append(rows, *r)
		}
	}
	return rows
}

// countBefore returns what had been counted of a cluster before. It is nothing if the replica had not known it.
func countBefore(c ask.Counts, now status.ClusterCounts) status.RequestCounts {
	for _, was := range c.Before.Clusters {
		if was.Cluster == now.Cluster && was.Since.Equal(now.Since) {
			return was.RequestCounts
		}
	}
	return status.RequestCounts{}
}

// growth returns what was asked for in all clusters together.
func growth(c ask.Counts) status.RequestCounts {
	if c.After.All.Requests < c.Before.All.Requests { // the replica was restarted
		return c.After.All
	}
	return minus(c.After.All, c.Before.All)
}

// minus never returns less than nothing.
func minus(a, b status.RequestCounts) status.RequestCounts {
	return status.RequestCounts{
		Requests: a.Requests - min(a.Requests, b.Requests), Writes: a.Writes - min(a.Writes, b.Writes), Refused: a.Refused - min(a.Refused, b.Refused),
		Failed: a.Failed - min(a.Failed, b.Failed), TooMany: a.TooMany - min(a.TooMany, b.TooMany), PlaceSeconds: max(0, a.PlaceSeconds-b.PlaceSeconds),
	}
}

func (r *Row) add(a status.RequestCounts, in time.Duration) {
	s := in.Seconds()
	if s <= 0 {
		return
	}
	r.Requests += float64(a.Requests) / s
	r.Writes += float64(a.Writes) / s
	r.Refused += float64(a.Refused) / s
	r.Failed += float64(a.Failed) / s
	r.TooMany += float64(a.TooMany) / s
	r.Places += a.PlaceSeconds / s
}
