package election

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

func TestWhatStandsForTheLifeOfAHolderNoMore(t *testing.T) {
	forLife, byPresence := owner{name: "replica-1", uid: "u"}, owner{name: "replica-1", uid: "u", holder: "h"}
	shown := func(uid types.UID, holder string) lease.Observation {
		l := leaseOf(holder, 1, 0)
		l.UID = uid
		return lease.Observation{Lease: l, Revision: "7"}
	}
	deleting := shown("u", "h")
	deleting.Lease.DeletionTimestamp = ptr.To(metav1.Now())
	for name, test := range map[string]struct {
		seen            lease.Observation
		life, presences bool
	}{
		"nothing was seen yet":           {seen: lease.Observation{}},
		"it is there":                    {seen: shown("u", "h")},
		"it is there, of another holder": {seen: shown("u", "h2"), presences: true},
		"it is released":                 {seen: shown("u", ""), presences: true},
		"it was made anew":               {seen: shown("u2", "h"), life: true, presences: true},
		"it was deleted":                 {seen: lease.Observation{Revision: "7"}, life: true, presences: true},
		"its deletion waits":             {seen: deleting, life: true, presences: true},
	} {
		if forLife.isGone(test.seen) != test.life || byPresence.isGone(test.seen) != test.presences {
			t.Errorf("%s: %v for life, %v by presence", name, forLife.isGone(test.seen), byPresence.isGone(test.seen))
		}
	}
}
