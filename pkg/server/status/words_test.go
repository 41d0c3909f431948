package status_test

import (
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/status"
)

// Whatever makes a replica campaign is said in a sentence, wherever it is shown.
func TestEveryTriggerHasASentence(t *testing.T) {
	for _, trigger := range election.Triggers {
		if status.Triggers[string(trigger)] == "" {
			t.Errorf("%s has none", trigger)
		}
	}
	if len(status.Triggers) != len(election.Triggers) {
		t.Errorf("%d sentences for %d triggers", len(status.Triggers), len(election.Triggers))
	}
}

// Terms of several ranges are told together. Why one began is what its own range's last leader has said.
func TestWhyATermBeganIsToldOfItsRange(t *testing.T) {
	terms := []status.Term{
		{Range: 3, Epoch: 7, Trigger: "release"}, {Range: 5, Epoch: 6, EndReason: "of another range"}, {Range: 3, Epoch: 6, EndReason: "a drill"},
		{Range: 5, Epoch: 5, Trigger: "death"}, {Range: 3, Epoch: 5, EndReason: "of another range"},
	}
	if why := status.Why(terms, 0); !strings.HasSuffix(why, " (a drill)") {
		t.Errorf("it began because %s", why)
	}
	if why := status.Why(terms, 3); strings.Contains(why, "another") {
		t.Errorf("the first that is known of a range began because %s", why)
	}
}
