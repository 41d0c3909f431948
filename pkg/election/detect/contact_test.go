package detect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

func TestAContactSaysWhenTheLeaderWasLastHeard(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	f := newDetector(t, "standby", "127.0.0.1:0")
	f.secret = shardSecret
	if got := f.ContactState(); got != nil {
		t.Errorf("before it follows anybody: %+v", got)
	}
	for name, test := range map[string]struct {
		leader election.Contact
		of     election.ContactReporter
		by     election.Detector
		state  state
	}{
		"a leader that lives":            {leader.Contact(), f, f, alive},
		"a leader that has no probe":     {election.Contact{}, f, f, absent},
		"a leader that was never there":  {election.Contact{Address: "127.0.0.1:1", Key: "k"}, f, f, refused},
		"the leader under another Lease": {leader.Contact(), nil, f.For("another"), alive},
	} {
		t.Run(name, func(t *testing.T) {
			if test.of == nil {
				test.of = test.by.(election.ContactReporter)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				test.by.Follow(ctx, test.leader, election.Follower{Report: func(election.News) {}, Writes: func(context.Context, string) bool { return false }})
			}()
			waitFor(t, "the contact is "+string(test.state), func() bool {
				got := test.of.ContactState()
				return got != nil && got.State == string(test.state)
			})
			got := test.of.ContactState()
			if heard := time.Since(got.Heard) < within; heard != (test.state == alive) || (got.AllowedSilence > 0) == (test.state == absent) {
				t.Errorf("the contact is %+v", got)
			}
			cancel()
			<-ended
			if got := test.of.ContactState(); got != nil {
				t.Errorf("when it follows nobody: %+v", got)
			}
		})
	}
}

// Of several contacts the metrics show how many are in each state: those that break off leave the others' as they are.
func TestTheMetricsCountContacts(t *testing.T) {
	one, two := open(t, "one", "127.0.0.1:0"), open(t, "two", "127.0.0.1:0")
	d := newDetector(t, "of-several", "127.0.0.1:0")
	t.Cleanup(d.Close)
	d.secret = shardSecret
	named := func(f *follower) { f.Detector = d }
	contacts := func(s state) float64 {
		return seriestest.Value(t, "regent_failure_detection_contact", d.cfg.Name, string(s))
	}
	must := func(want map[state]float64) {
		t.Helper()
		waitFor(t, fmt.Sprintf("contacts %v", want), func() bool {
			for _, s := range states {
				if contacts(s) != want[s] {
					return false
				}
			}
			return true
		})
	}
	must(map[state]float64{idle: 1})
	follow(t, one.Contact(), named)
	second := follow(t, two.Contact(), named)
	must(map[state]float64{alive: 2})
	lost := follow(t, election.Contact{}, named)
	must(map[state]float64{alive: 2, absent: 1})
	second.stop()
	<-second.ended
	must(map[state]float64{alive: 1, absent: 1})
	lost.stop()
	one.Close()
	must(map[state]float64{dead: 1})
}
