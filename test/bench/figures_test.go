package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// row is a row of the table: one contender, one way to end.
type row struct {
	event, name string
	samples     []sample
}

const tableHead = `| the leader gets | who | n | median | p90 | p99 | max | load average, mean (range) |
|---|---|---|---|---|---|---|---|
`

// String is the row in Markdown. It has every sample there is.
func (r row) String() string {
	if len(r.samples) == 0 {
		return fmt.Sprintf("| %s | %s | 0 | | | | | |\n", r.event, r.name)
	}
	took := r.durations()
	return fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %s | %s |\n", r.event, r.name, len(took),
		show(median(took)), show(percentile(took, 90)), show(percentile(took, 99)), show(slices.Max(took)), r.loads())
}

// loads is the mean of the load averages, and their range.
func (r row) loads() string {
	var loads []float64
	sum := 0.0
	for _, s := range r.samples {
		loads, sum = append(loads, s.load), sum+s.load
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", sum/float64(len(loads)), slices.Min(loads), slices.Max(loads))
}

func (r row) durations() (took []time.Duration) {
	for _, s := range r.samples {
		took = append(took, s.took)
	}
	return took
}

// show shows milliseconds as long as they are not too many.
func show(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// percentile is the least of all of which at least p of a hundred are no greater: one that was measured.
func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(1, int(math.Ceil(float64(p)*float64(len(sorted))/100)))-1]
}

// median is the one in the middle, or what is between the two there.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func TestFiguresAreThoseOfAllSamples(t *testing.T) {
	var r row
	for n := range 200 { // 1 to 200 ms, in no order
		r.samples = append(r.samples, sample{took: time.Duration(1+n*77%200) * time.Millisecond, load: float64(n % 2)})
	}
	r.event, r.name = "kill -9", "somebody"
	const want = "| kill -9 | somebody | 200 | 100.5 ms | 180.0 ms | 198.0 ms | 200.0 ms | 0.50 (0.00 to 1.00) |\n"
	if got := r.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r.samples = r.samples[:1]
	if got := r.String(); strings.Count(got, "1.0 ms") != 4 {
		t.Errorf("a single sample is not all figures: %s", got)
	}
}

func TestTurnsAreSpreadOverAllRounds(t *testing.T) {
	for _, c := range []struct{ n, rounds int }{{200, 10}, {7, 3}, {2, 5}, {0, 1}} {
		sum := 0
		for round := range c.rounds {
			sum += share(c.n, round, c.rounds)
		}
		if sum != c.n {
			t.Errorf("%d turns in %d rounds, want %d", sum, c.rounds, c.n)
		}
	}
}
