package endpoints

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/terms"
)

// A replica that cannot take the lease is a problem for as long as nobody has it: later that is an old story.
func TestAReplicaSaysWhyItCannotLead(t *testing.T) {
	for name, c := range map[string]struct {
		is   election.Status
		want string
	}{
		"it can":                                {election.Status{Leaderless: time.Second}, ""},
		"it cannot read":                        {election.Status{CannotRead: "read", CannotWrite: "write", Leaderless: time.Second}, "read"},
		"it cannot stand":                       {election.Status{CannotStand: "stand"}, "stand"},
		"it is held":                            {election.Status{Held: "waits"}, "waits"},
		"it cannot write, and nobody leads":     {election.Status{CannotWrite: "forbidden", Leaderless: time.Second}, "cannot take the lease: forbidden"},
		"it could not write, and another leads": {election.Status{CannotWrite: "forbidden"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := electionOf(c.is, "kube-system/regent").CannotLead; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A replica whose answer is too long is told to give none (survey). A controller may fail in each range, with an error
// that is as long as a tenant has it.
func TestWhatFailsInManyRangesIsToldInAShortAnswer(t *testing.T) {
	s := terms.Status{Status: supervisor.Status{Controller: "c", State: supervisor.Stalled}, Ranges: map[int]supervisor.Status{}}
	for k := range ranges.MaxRanges {
		s.Ranges[k] = supervisor.Status{Controller: "c", State: supervisor.Stalled, LastError: errors.New(strings.Repeat("x", 1<<20))}
	}
	told := controllerOf(s)
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	if len(told.Ranges) != status.MostUnwell || told.Ranges[0].Range != 0 || !strings.HasPrefix(told.Ranges[0].LastError, "xxx") || len(text) > 32<<10 {
		t.Errorf("%d ranges are told, in %d bytes", len(told.Ranges), len(text))
	}
}
