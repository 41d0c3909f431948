package detect

import (
	"context"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
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
