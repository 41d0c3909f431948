package detect

import (
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

// A standby of an older version says only that it can read the Lease. That proves nothing if etcd takes no writes.
func TestALeaderHeedsWhoCouldWriteTheLease(t *testing.T) {
	standby := election.Standby{Replica: "standby"}
	for sent, want := range map[string]election.Confirmation{
		`{"reads":"h"}`:              {},
		`{"reads":"h","writes":"h"}`: {Standby: standby, Holder: "h"},
		`{"wants":"h"}`:              {},
		`{}`:                         {},
		`{"reads":"h","writes":"h","later":{"a":[1]}}`: {Standby: standby, Holder: "h"},
	} {
		_ = lines(strings.NewReader(sent), func(c confirmation) {
			got, any := c.by(standby)
			if !any {
				got = election.Confirmation{}
			}
			if got != want {
				t.Errorf("%s is taken for %+v, want %+v", sent, got, want)
			}
		})
	}
}

// I15: what a newer version adds to what leaders and standbys send each other is ignored. A condition that a standby
// does not know is told as it is.
func TestWhatANewerVersionAddsToTheProbeIsIgnoredI15(t *testing.T) {
	for sent, want := range map[string]election.Statement{
		`{"holder":"h","condition":"well","later":[{"a":1}]}`: {Holder: "h", Condition: election.Well},
		`{"holder":"h","condition":"later"}`:                  {Holder: "h", Condition: "later"},
	} {
		took := 0
		_ = lines(strings.NewReader(sent+"\n"), func(got election.Statement) {
			if took++; got != want {
				t.Errorf("%s is taken for %+v", sent, got)
			}
		})
		if took != 1 {
			t.Errorf("%s is taken %d times", sent, took)
		}
	}
}
