package metrics

import (
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Others is the name of the row with what logical clusters were asked for that are not among the busiest of their
// replica.
const Others = "(others)"

// Counted is what a replica has counted, twice.
type Counted struct{ Before, After status.Top }

// OfClusters returns a row for each logical cluster in which anything was asked for on any of the replicas, and one for
// those that are not among the busiest.
func OfClusters(all []Counted) (rows []Row) {
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
	for _, c := range all {
		others := c.all()
		for _, now := range c.After.Clusters {
			grown := minus(now.Asked, c.before(now))
			of(now.Cluster, now.Path).addAsked(grown, c.lasted())
			others = minus(others, grown)
		}
		of(Others, "").addAsked(others, c.lasted())
	}
	for _, r := range by {
		if r.Requests > 0 || r.Places > 0 {
			rows = append(rows, *r)
		}
	}
	return rows
}

func (c Counted) lasted() time.Duration { return c.After.Observed.Sub(c.Before.Observed) }

// before is what had been counted of a cluster. It is nothing if the replica had not known it.
func (c Counted) before(now status.ClusterAsked) status.Asked {
	for _, was := range c.Before.Clusters {
		if was.Cluster == now.Cluster && was.Since.Equal(now.Since) {
			return was.Asked
		}
	}
	return status.Asked{}
}

// all is what was asked for in all clusters together.
func (c Counted) all() status.Asked {
	if c.After.All.Requests < c.Before.All.Requests { // the replica was restarted
		return c.After.All
	}
	return minus(c.After.All, c.Before.All)
}

// minus never returns less than nothing.
func minus(a, b status.Asked) status.Asked {
	return status.Asked{
		Requests: a.Requests - min(a.Requests, b.Requests), Writes: a.Writes - min(a.Writes, b.Writes), Refused: a.Refused - min(a.Refused, b.Refused),
		Failed: a.Failed - min(a.Failed, b.Failed), TooMany: a.TooMany - min(a.TooMany, b.TooMany), PlaceSeconds: max(0, a.PlaceSeconds-b.PlaceSeconds),
	}
}

func (r *Row) addAsked(a status.Asked, in time.Duration) {
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
