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
