package metrics_test

import (
	"os"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/metrics"
)

func interval(t *testing.T) metrics.Interval {
	t.Helper()
	var i metrics.Interval
	at := time.Date(2026, time.November, 23, 10, 0, 0, 0, time.UTC)
	for name, into := range map[string]*metrics.Reading{"before": &i.Before, "after": &i.After} {
		text, err := os.ReadFile("../view/testdata/" + name + ".metrics")
		if err != nil {
			t.Fatal(err)
		}
		if *into, err = metrics.Read(text, at); err != nil {
			t.Fatal(err)
		}
	}
	i.After.At = at.Add(2 * time.Second)
	return i
}

func TestARowIsWhatWasAskedInASecond(t *testing.T) {
	row := metrics.OfReplica("root", "a", "leading", interval(t))
	if row.Requests != 14 || row.Writes != 4 || row.Refused != 1 || row.Failed != 0 || row.TooMany != 6 || row.Fenced != 3.5 {
		t.Errorf("%+v", row)
	}
	resources := metrics.OfResources([]metrics.Interval{interval(t), interval(t)})
	if len(resources) != 1 || resources[0].Resource != "configmaps" || resources[0].Requests != 28 || resources[0].Writes != 8 {
		t.Errorf("%+v", resources)
	}
}

func TestAQuantileIsTheBoundOfItsBucket(t *testing.T) {
	i := interval(t)
	for q, want := range map[float64]time.Duration{0.5: 600 * time.Millisecond, 0.99: 600 * time.Millisecond} {
		if got, n := i.Quantile("etcd_request_duration_seconds", q, nil); got != want || n != 50 {
			t.Errorf("%v: %s of %d", q, got, n)
		}
	}
	if got, n := (metrics.Interval{After: i.Before}).Quantile("etcd_request_duration_seconds", 0.99, nil); got != 5*time.Millisecond || n != 100 {
		t.Errorf("%s of %d", got, n)
	}
	if got, n := i.Quantile("no_such", 0.99, nil); got != 0 || n != 0 {
		t.Errorf("%s of %d", got, n)
	}
}

// A replica that was restarted in between counts from nothing.
func TestACounterThatFellWasSetBack(t *testing.T) {
	i := interval(t)
	i.Before, i.After = i.After, i.Before
	if got := i.Grown("apiserver_request_total", metrics.Is("verb", "POST")); got != 10 {
		t.Errorf("grown by %v", got)
	}
	if got, n := i.Quantile("etcd_request_duration_seconds", 0.5, nil); got != 5*time.Millisecond || n != 100 {
		t.Errorf("%s of %d", got, n)
	}
}

func TestTheLargestIsFirst(t *testing.T) {
	rows := []metrics.Row{{Replica: "a", Requests: 1, CPU: 3}, {Replica: "b", Requests: 2, CPU: 1}, {Replica: "c", Requests: 2}}
	for order, want := range map[string]string{"requests": "bca", "cpu": "abc", "writes": "abc"} {
		if err := metrics.Sort(rows, order); err != nil {
			t.Fatal(err)
		}
		if got := rows[0].Replica + rows[1].Replica + rows[2].Replica; got != want {
			t.Errorf("%s: %s", order, got)
		}
	}
	for _, order := range metrics.Orders {
		if err := metrics.Sort(rows, order); err != nil {
			t.Error(err)
		}
	}
	if err := metrics.Sort(rows, "colour"); err == nil {
		t.Error("sorted by colour")
	}
}

func TestWhatIsNotMetricsIsAnError(t *testing.T) {
	if _, err := metrics.Read([]byte("<html>"), time.Time{}); err == nil {
		t.Error("read")
	}
}
