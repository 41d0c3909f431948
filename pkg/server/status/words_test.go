package status_test

import (
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
