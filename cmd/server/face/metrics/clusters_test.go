package metrics_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/metrics"
	"github.com/regent-project/regent/pkg/server/status"
)

func TestRatesOfClustersAreOfAllReplicasTogether(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	cluster := func(name, path string, since time.Time, n uint64) status.ClusterAsked {
		return status.ClusterAsked{Cluster: name, Path: path, Since: since, Asked: status.Asked{Requests: n, Writes: n / 2, Refused: n / 10, PlaceSeconds: float64(n) / 100}}
	}
	top := func(seconds int, all uint64, clusters ...status.ClusterAsked) status.Top {
		return status.Top{Observed: at.Add(time.Duration(seconds) * time.Second), All: status.Asked{Requests: all}, Clusters: clusters}
	}
	rows := metrics.OfClusters([]metrics.Counted{
		// One replica knows a's path. It had forgotten b meanwhile, and it was asked for 10 things in others.
		{Before: top(0, 1000, cluster("a", "root:a", at, 100), cluster("b", "", at, 400)),
			After: top(10, 1130, cluster("a", "root:a", at, 200), cluster("b", "", at.Add(time.Second), 20))},
		// The other one was restarted.
		{Before: top(0, 1000, cluster("a", "", at, 1000), cluster("idle", "", at, 5)), After: top(5, 50, cluster("a", "", at.Add(time.Second), 50), cluster("idle", "", at, 5))},
	})
	if err := metrics.Sort(rows, "requests"); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Places = float64(int(rows[i].Places*1000+.5)) / 1000
	}
	want := []metrics.Row{
		{Cluster: "a", Path: "root:a", Requests: 20, Writes: 10, Refused: 2, Places: 0.2},
		{Cluster: "b", Requests: 2, Writes: 1, Refused: 0.2, Places: 0.02},
		{Cluster: metrics.Others, Requests: 1},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got  %+v\nwant %+v", rows, want)
	}
}
