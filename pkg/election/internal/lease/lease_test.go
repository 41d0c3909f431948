package lease

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// leaseOf is a Lease of uid "u" whose renewTime has no meaning on our clock.
func leaseOf(holder string, epoch int32, renewed int64) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{UID: "u"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseTransitions: &epoch,
			RenewTime: ptr.To(metav1.NewMicroTime(time.Unix(renewed, 0))),
		},
	}
}

func TestAnObservationKeepsItsTimeWhileNoSignOfLifeChanges(t *testing.T) {
	first, _ := Observation{}.next(leaseOf("h", 4, 7), "10", noon)
	labelled := leaseOf("h", 4, 7)
	labelled.Labels = map[string]string{"a": "b"}
	another := leaseOf("h", 4, 7)
	another.UID = "another"
	later := noon.Add(time.Second)
	for name, test := range map[string]struct {
		lease    *coordinationv1.Lease
		revision string
		news     bool
		since    time.Time
	}{
		"the same again":     {leaseOf("h", 4, 7), "10", false, noon},
		"an older revision":  {leaseOf("g", 3, 6), "9", false, noon},
		"a label":            {labelled, "11", true, noon},
		"a renewal":          {leaseOf("h", 4, 8), "11", true, later},
		"a renewal backward": {leaseOf("h", 4, 6), "11", true, later},
		"another holder":     {leaseOf("i", 4, 7), "11", true, later},
		"another epoch":      {leaseOf("h", 5, 7), "11", true, later},
		"another uid":        {another, "11", true, later},
		"deleted":            {nil, "11", true, later},
		"more digits":        {leaseOf("h", 5, 7), "101", true, later},
	} {
		got, news := first.next(test.lease, test.revision, later)
		if news != test.news || !got.Since.Equal(test.since) {
			t.Errorf("%s: news %v since %v, want %v since %v", name, news, got.Since, test.news, test.since)
		}
		if got.Highest < 4 {
			t.Errorf("%s: the highest epoch seen is %d, want at least 4", name, got.Highest)
		}
	}
}

func TestAPinHoldsWhileUidHolderAndEpochDo(t *testing.T) {
	p := Pin{UID: "u", Holder: "h", Epoch: 4}
	another := leaseOf("h", 4, 0)
	another.UID = types.UID("another")
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		holds bool
	}{
		"the same":                           {leaseOf("h", 4, 99), true},
		"another holder":                     {leaseOf("i", 4, 0), false},
		"nobody":                             {leaseOf("", 4, 0), false},
		"a later epoch":                      {leaseOf("h", 5, 0), false},
		"an earlier epoch":                   {leaseOf("h", 3, 0), false},
		"another holder in an earlier epoch": {leaseOf("g", 3, 0), false},
		"another uid":                        {another, false},
		"deleted":                            {nil, false},
	} {
		if err := p.Check(test.lease); (err == nil) != test.holds {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPresenceOfAnotherHolderCountsAsAbsent(t *testing.T) {
	lease := leaseOf("h", 1, 0)
	for _, text := range []string{"", "{", "null", `[]`, `{"holder":"g","process":"p"}`, `{"process":"p"}`} {
		lease.Annotations = map[string]string{PresenceAnnotation: text}
		if got := PresenceOf(lease); !reflect.DeepEqual(got, Presence{}) {
			t.Errorf("%q counts as %v", text, got)
		}
	}
	want := Presence{Holder: "h", Process: "p", BootID: "b", Fencing: Unfenced, LastStepDown: "why"}
	want.WriteTo(lease)
	if got := PresenceOf(lease); !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, read %v", want, got)
	}
	if got := PresenceOf(Freed(lease, Presence{LastStepDown: "done", FailedParts: []string{"a"}})); !reflect.DeepEqual(got, Presence{LastStepDown: "done", FailedParts: []string{"a"}}) {
		t.Errorf("a release leaves %v, want the cause alone", got)
	}
}

// I15: what a newer version adds to a presence is ignored. A presence of another shape counts as none: its holder is
// then one that says nothing of itself, and is waited for until its lease expires.
func TestAPresenceOfAnotherVersionIsReadAsFarAsItIsKnownI15(t *testing.T) {
	for text, want := range map[string]Presence{
		`{"holder":"h","replica":"r"}`:                                          {Holder: "h", Replica: "r"},
		`{"holder":"h","replica":"r","later":{"a":[1]},"probe":{"later":true}}`: {Holder: "h", Replica: "r"},
		`{"holder":"h","electionMode":"later","succession":"later"}`:            {Holder: "h", ElectionMode: "later", Succession: "later"},
		`{"holder":"h","priority":9223372036854775807}`:                         {},
		`{"holder":{"name":"h"}}`:                                               {},
	} {
		held := leaseOf("h", 1, 0)
		held.Annotations = map[string]string{PresenceAnnotation: text}
		if got := PresenceOf(held); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, want %+v", text, got, want)
		}
	}
}

func TestTheLastEpochOfALeaseIsRefusedButNotThatOfItsSuccessor(t *testing.T) {
	seen := Observation{Lease: leaseOf("", 1<<31-1, 0), Highest: 1<<31 - 1}
	if _, err := seen.NextEpoch(); !errors.Is(err, ErrNoEpochLeft) {
		t.Error("an epoch that overflows is not refused")
	}
	seen.Lease = nil
	if epoch, err := seen.NextEpoch(); err != nil || epoch != 1 {
		t.Errorf("a new Lease gets epoch %d, %v; want 1", epoch, err)
	}
	seen.Lease = leaseOf("", 1, 0)
	if epoch, err := seen.NextEpoch(); err != nil || epoch != 2 {
		t.Errorf("after epoch 1 of the new Lease comes epoch %d, %v; want 2", epoch, err)
	}
}

// The holder names the owner of a Lease that is held for life. Owners that others have given the Lease are not touched.
func TestTheOwnerOfATermIsTheOneThatItsHolderNames(t *testing.T) {
	l := leaseOf("h", 4, 7)
	l.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "d", UID: "others"}, {Kind: "Pod", Name: "p", UID: "holders"}}
	Presence{Holder: "h", Owner: "holders"}.WriteTo(l)
	if owner := TermOwner(l); owner == nil || owner.Name != "p" {
		t.Errorf("the owner is %v", owner)
	}
	disown(l)
	if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].Name != "d" || TermOwner(l) != nil {
		t.Errorf("left: %v", l.OwnerReferences)
	}
}

// A process looks at an Observation at each step of an election, and decodes the Lease only when it changes.
func TestAnObservationDecodesItsLeaseOnce(t *testing.T) {
	held := leaseOf("h", 4, 7)
	Presence{Holder: "h", Replica: "first", ElectionMode: ForLife, Life: "replica-1"}.WriteTo(held)
	seen, _ := Observation{}.next(held, "10", noon)
	var sum int
	allocations := testing.AllocsPerRun(100, func() {
		if !seen.Expires() {
			sum += len(seen.Presence().Replica) + len(seen.Life().Name)
		}
	})
	if allocations != 0 || sum == 0 {
		t.Errorf("%v allocations for a look, %d bytes read", allocations, sum)
	}
	other := held.DeepCopy()
	Presence{Holder: "h", Replica: "second"}.WriteTo(other)
	copied := seen
	copied.Lease = other
	if got := copied.Presence().Replica; got != "second" {
		t.Errorf("a copy with another Lease shows the presence of %q", got)
	}
}

// A process that holds its leases by its presence may take one again under the same identity.
func TestATermEndsThoughItsHolderLeadsAgain(t *testing.T) {
	first, _ := Observation{}.next(leaseOf("h", 4, 7), "10", noon)
	renewed, _ := first.next(leaseOf("h", 4, 8), "11", noon.Add(time.Second))
	again, _ := renewed.next(leaseOf("h", 6, 8), "14", noon.Add(2*time.Second))
	if n := len(renewed.Past); n != 0 {
		t.Errorf("a renewal has ended %d terms", n)
	}
	if p := again.Past; len(p) != 1 || p[0].Epoch != 4 || p[0].Holder != "h" || !p[0].Ended.Equal(noon.Add(2*time.Second)) {
		t.Errorf("the terms before are %+v", p)
	}
}
