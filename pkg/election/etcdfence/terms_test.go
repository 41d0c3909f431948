package etcdfence

import (
	"testing"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Once revisions say nothing nothing that is learnt later is believed either: etcd may go back again.
func TestNothingIsRememberedOfTermsOnceEtcdWentBack(t *testing.T) {
	const key, another = "/registry/leases/n/l", "/registry/leases/n/another"
	shown := fence.Token{Namespace: "n", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	remembered := newTerms()
	if remembered.learn(key, shown, 5); remembered.revision(key, shown) != 5 {
		t.Fatalf("remembers revision %d", remembered.revision(key, shown))
	}
	if remembered.learn(key, shown, 4); remembered.revision(key, shown) != 5 { // late news
		t.Errorf("remembers revision %d after late news", remembered.revision(key, shown))
	}
	if revision := remembered.revision(another, shown); revision != 0 {
		t.Errorf("remembers revision %d of another Lease", revision)
	}
	next := shown
	next.Epoch = 2
	if revision := remembered.revision(key, next); revision != 0 {
		t.Errorf("remembers revision %d of a term that was not seen", revision)
	}
	remembered.forget()
	if revision := remembered.revision(key, shown); revision != 0 {
		t.Errorf("remembers revision %d of a history that did not happen", revision)
	}
	if got := remembered.learn(key, shown, 6); got != termOf(shown) || remembered.revision(key, shown) != 0 {
		t.Errorf("remembers revision %d after that", remembered.revision(key, shown))
	}
}
