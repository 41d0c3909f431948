package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

func TestRatesOfClustersAreOfAllReplicasTogether(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	cluster := func(name, path string, since time.Time, n uint64) status.ClusterCounts {
		return status.ClusterCounts{Cluster: name, Path: path, Since: since, RequestCounts: status.RequestCounts{Requests: n, Writes: n / 2, Refused: n / 10, PlaceSeconds: float64(n) / 100}}
	}
	top := func(seconds int, all uint64, clusters ...status.ClusterCounts) status.Top {
		return status.Top{Observed: at.Add(time.Duration(seconds) * time.Second), All: status.RequestCounts{Requests: all}, Clusters: clusters}
	}
	rows := view.Rows(view.ByCluster, []ask.Replica{
		// One replica knows a's path. It had forgotten b meanwhile, and it was asked for 10 things in others.
		{Counts: ask.Counts{Before: top(0, 1000, cluster("a", "root:a", at, 100), cluster("b", "", at, 400)),
			After: top(10, 1130, cluster("a", "root:a", at, 200), cluster("b", "", at.Add(time.Second), 20))}},
		// The other one was restarted.
		{Counts: ask.Counts{Before: top(0, 1000, cluster("a", "", at, 1000), cluster("idle", "", at, 5)), After: top(5, 50, cluster("a", "", at.Add(time.Second), 50), cluster("idle", "", at, 5))}},
	})
	if err := view.Sort(rows, "requests"); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Places = float64(int(rows[i].Places*1000+.5)) / 1000
	}
	want := []view.Row{
		{Cluster: "a", Path: "root:a", Requests: 20, Writes: 10, Refused: 2, Places: 0.2},
		{Cluster: "b", Requests: 2, Writes: 1, Refused: 0.2, Places: 0.02},
		{Cluster: view.Others, Requests: 1},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got  %+v\nwant %+v", rows, want)
	}
}

func TestARowIsWhatWasAskedInASecond(t *testing.T) {
	i := ask.Interval{Before: reading(t, "before", statustest.Now), After: reading(t, "after", statustest.Now.Add(2*time.Second))}
	replica := ask.Replica{Shard: "root", Name: "a", State: "leading", Metrics: i}
	row := view.Rows(view.ByReplica, []ask.Replica{replica})[0]
	if row.Requests != 14 || row.Writes != 4 || row.Refused != 1 || row.Failed != 0 || row.TooMany != 6 || row.Fenced != 3.5 {
		t.Errorf("%+v", row)
	}
	resources := view.Rows(view.ByResource, []ask.Replica{replica, replica})
	if len(resources) != 1 || resources[0].Resource != "configmaps" || resources[0].Requests != 28 || resources[0].Writes != 8 {
		t.Errorf("%+v", resources)
	}
}

func TestTheLargestIsFirst(t *testing.T) {
	rows := []view.Row{{Replica: "a", Requests: 1, CPU: 3}, {Replica: "b", Requests: 2, CPU: 1}, {Replica: "c", Requests: 2}}
	for order, want := range map[string]string{"requests": "bca", "cpu": "abc", "writes": "abc"} {
		if err := view.Sort(rows, order); err != nil {
			t.Fatal(err)
		}
		if got := rows[0].Replica + rows[1].Replica + rows[2].Replica; got != want {
			t.Errorf("%s: %s", order, got)
		}
	}
	for _, order := range view.Orders {
		if err := view.Sort(rows, order); err != nil {
			t.Error(err)
		}
	}
	if err := view.Sort(rows, "colour"); err == nil {
		t.Error("sorted by colour")
	}
}
