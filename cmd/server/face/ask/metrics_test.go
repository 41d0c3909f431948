package ask_test

import (
	"os"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
)

func interval(t *testing.T) ask.Interval {
	t.Helper()
	var i ask.Interval
	at := time.Date(2026, time.November, 23, 10, 0, 0, 0, time.UTC)
	for name, into := range map[string]*ask.Reading{"before": &i.Before, "after": &i.After} {
		text, err := os.ReadFile("../view/testdata/" + name + ".metrics")
		if err != nil {
			t.Fatal(err)
		}
		if *into, err = ask.ReadMetrics(text, at); err != nil {
			t.Fatal(err)
		}
	}
	i.After.At = at.Add(2 * time.Second)
	return i
}

func TestAQuantileIsTheBoundOfItsBucket(t *testing.T) {
	i := interval(t)
	for q, want := range map[float64]time.Duration{0.5: 600 * time.Millisecond, 0.99: 600 * time.Millisecond} {
		if got, n := i.Quantile("etcd_request_duration_seconds", q, nil); got != want || n != 50 {
			t.Errorf("%v: %s of %d", q, got, n)
		}
	}
	if got, n := (ask.Interval{After: i.Before}).Quantile("etcd_request_duration_seconds", 0.99, nil); got != 5*time.Millisecond || n != 100 {
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
	if got := i.Growth("apiserver_request_total", ask.Is("verb", "POST")); got != 10 {
		t.Errorf("grown by %v", got)
	}
	if got, n := i.Quantile("etcd_request_duration_seconds", 0.5, nil); got != 5*time.Millisecond || n != 100 {
		t.Errorf("%s of %d", got, n)
	}
}

func TestWhatIsNotMetricsIsAnError(t *testing.T) {
	if _, err := ask.ReadMetrics([]byte("<html>"), time.Time{}); err == nil {
		t.Error("read")
	}
}
