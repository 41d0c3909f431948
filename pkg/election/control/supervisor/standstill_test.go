package supervisor

import (
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
)

// One group alone that gets nothing done holds a controller, and does not stall it. Two groups do, and whoever does not
// tell groups apart.
func TestOneGroupHoldsAControllerAndTwoStallIt(t *testing.T) {
	const every = 10 * time.Second
	fresh := func(pending int, returned uint64, only string) control.Health {
		return control.Health{Pending: pending, Returned: returned, Only: only}
	}
	both := func(only, ofSweep string) control.Health {
		return control.Health{Pending: 2, Only: only, Sweep: control.Sweep{Running: true, Pending: 1, Only: ofSweep}}
	}
	type seen struct {
		idle, held time.Duration
		by         string
	}
	for name, c := range map[string]struct {
		reports     []control.Health // one each ten seconds
		unreachable bool
		want        seen
	}{
		"nothing to do":                 {reports: []control.Health{{}, {}}},
		"groups are not told apart":     {reports: []control.Health{fresh(3, 0, ""), fresh(3, 0, "")}, want: seen{idle: 2 * every}},
		"one group":                     {reports: []control.Health{fresh(3, 0, "a"), fresh(3, 0, "a")}, want: seen{held: 2 * every, by: "a"}},
		"one group, and no store":       {reports: []control.Health{fresh(3, 0, "a"), fresh(3, 0, "a")}, unreachable: true, want: seen{by: "a"}},
		"no store":                      {reports: []control.Health{fresh(3, 0, ""), fresh(3, 0, "")}, unreachable: true},
		"one group that gets on":        {reports: []control.Health{fresh(3, 0, "a"), fresh(3, 1, "a")}},
		"a second group comes":          {reports: []control.Health{fresh(3, 0, "a"), fresh(3, 0, "a"), fresh(4, 0, "")}, want: seen{idle: every}},
		"and is worked for":             {reports: []control.Health{fresh(3, 0, "a"), fresh(4, 0, ""), fresh(3, 1, "a"), fresh(3, 1, "a")}, want: seen{held: every, by: "a"}},
		"and has gone without a return": {reports: []control.Health{fresh(4, 0, ""), fresh(3, 0, "a")}, want: seen{idle: every}},
		"one group by the sweep":        {reports: []control.Health{both("", "a"), both("", "a")}, want: seen{idle: 2 * every}},
		"one group, by both":            {reports: []control.Health{both("a", "a"), both("a", "a")}, want: seen{held: 2 * every, by: "a"}},
		"two groups, each by one":       {reports: []control.Health{both("a", "b"), both("a", "b")}, want: seen{idle: 2 * every}},
		"the sweep moves, one group holds the rest": {reports: []control.Health{
			both("a", ""), {Pending: 2, Returned: 1, Only: "a", Sweep: control.Sweep{Running: true, Pending: 1, Returned: 1}},
		}, want: seen{held: 2 * every, by: "a"}},
	} {
		var s standstill
		var got seen
		for _, h := range c.reports {
			got.idle, got.held, got.by = s.observe(h, every, !c.unreachable)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
