package endpoints

import (
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
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
