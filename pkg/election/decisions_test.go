package election

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

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

func TestAStandbysVerdict(t *testing.T) {
	held := lease.Observation{Lease: leaseOf("h", 1, 0), Revision: "1", Since: noon}
	short := held
	short.Lease = held.Lease.DeepCopy()
	short.Lease.Spec.LeaseDurationSeconds = ptr.To[int32](3)
	for name, test := range map[string]struct {
		seen       lease.Observation
		after      time.Duration
		mine, dead bool
		want       action
		until      time.Time
	}{
		"nothing known":                 {want: wait},
		"no Lease":                      {seen: lease.Observation{Revision: "1"}, want: win},
		"no holder":                     {seen: lease.Observation{Lease: leaseOf("", 1, 0), Revision: "1", Since: noon}, want: win},
		"held":                          {seen: held, after: 15*time.Second - 1, want: wait, until: noon.Add(15 * time.Second)},
		"expired":                       {seen: held, after: 15 * time.Second, want: win},
		"held, by the Lease's duration": {seen: short, after: 3*time.Second - 1, want: wait, until: noon.Add(3 * time.Second)},
		"expired, by the Lease's":       {seen: short, after: 3 * time.Second, want: win},
		"dead":                          {seen: held, dead: true, want: win},
		"ours":                          {seen: held, mine: true, want: clear},
		"ours and expired":              {seen: held, after: time.Hour, mine: true, want: clear},
	} {
		v := judge(test.seen, noon.Add(test.after), 15*time.Second, knowledge{mine: test.mine, dead: test.dead})
		if v.action != test.want || !v.until.Equal(test.until) {
			t.Errorf("%s: action %d until %v, want %d until %v", name, v.action, v.until, test.want, test.until)
		}
	}
}

// Each look is a second after the one before.
func TestATakeoverBeginsWithWhatEndedTheLastTerm(t *testing.T) {
	type look struct {
		trigger         Trigger // empty: another holds the lease
		highest, before int64
	}
	for name, test := range map[string]struct {
		elects  bool
		looks   []look
		want    Trigger
		decided time.Duration
	}{
		"a death":                                {looks: []look{{TriggerDeath, 5, 4}}, want: TriggerDeath},
		"a death, seen for long":                 {looks: []look{{TriggerDeath, 5, 4}, {TriggerDeath, 5, 4}}, want: TriggerDeath},
		"a suspicion, then the holder's release": {looks: []look{{TriggerSuspicion, 5, 4}, {TriggerRelease, 5, 4}}, want: TriggerRelease, decided: time.Second},
		"another was faster":                     {looks: []look{{TriggerDeath, 5, 4}, {"", 6, 5}, {TriggerRelease, 6, 5}}, want: TriggerRelease, decided: 2 * time.Second},
		"a death, deposed, elected":              {elects: true, looks: []look{{TriggerDeath, 5, 4}, {TriggerRelease, 5, 4}, {TriggerElected, 6, 5}, {TriggerElected, 6, 5}}, want: TriggerDeath},
		"a deletion, elected":                    {elects: true, looks: []look{{TriggerDeletion, 5, 4}, {TriggerElected, 6, 5}}, want: TriggerDeletion},
		"elected, of what went before nothing":   {elects: true, looks: []look{{"", 5, 4}, {TriggerElected, 6, 5}}, want: TriggerElected, decided: time.Second},
		"elected after a term that was not seen": {elects: true, looks: []look{{TriggerDeath, 5, 4}, {TriggerElected, 7, 6}}, want: TriggerElected, decided: time.Second},
		"a release after one":                    {elects: true, looks: []look{{TriggerDeath, 5, 4}, {TriggerRelease, 6, 5}}, want: TriggerRelease, decided: time.Second},
	} {
		var w winnable
		for i, l := range test.looks {
			now, v := noon.Add(time.Duration(i)*time.Second), verdict{}
			if l.trigger != "" {
				v = verdict{action: win, trigger: l.trigger, symptom: now}
			}
			w = w.next(v, lease.Observation{Highest: l.highest, Before: l.before}, test.elects, now)
		}
		if got := w.takeover(); got.Trigger != test.want || got.Decided != noon.Add(test.decided) || got.Symptom != got.Decided {
			t.Errorf("%s: %+v, want %s after %v", name, got, test.want, test.decided)
		}
	}
}

func TestSuspicionsAreCountedUntilThereIsCalm(t *testing.T) {
	for name, test := range map[string]struct {
		n       int
		lasted  time.Duration
		trigger Trigger
		want    int
	}{
		"the first":                           {0, time.Hour, TriggerSuspicion, 1},
		"another, soon":                       {1, 59 * time.Second, TriggerSuspicion, 2},
		"another, after a minute":             {1, time.Minute, TriggerSuspicion, 1},
		"many, and then another at its pause": {7, time.Minute, TriggerSuspicion, 8},
		"many, and then calm":                 {7, 2 * time.Minute, TriggerSuspicion, 1},
		"edited to less than none":            {-5, time.Second, TriggerSuspicion, 1},
		"edited to the greatest":              {math.MaxInt, time.Second, TriggerSuspicion, mostSuspicions + 1},
		"a release forgets nothing":           {3, 0, TriggerRelease, 3},
		"a release after calm":                {3, time.Hour, TriggerRelease, 0},
		"a death counts for nothing":          {0, 0, TriggerDeath, 0},
	} {
		if got := nextSuspicions(test.n, test.lasted, test.trigger); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Whoever reads the Lease, or a LeaseCandidate, sees whose it is.
func TestAnIdentityBeginsWithTheReplicasName(t *testing.T) {
	for _, test := range []struct {
		replica string
		objects bool
		want    string
	}{
		{"host-a.example-6443", false, "host-a.example-6443_"},
		{"Host_A", false, "Host_A_"},
		{"host-a.example-6443", true, "host-a.example-6443-"},
		{"Host_A", true, "host-a-"},
		{"a..b", true, "a--b-"},
		{"___", true, "replica-"},
		{strings.Repeat("a", 70), true, strings.Repeat("a", 63) + "-"},
	} {
		identity := newIdentities(test.replica, test.objects).next()
		if rest, ok := strings.CutPrefix(identity, test.want); !ok || uuid.Validate(rest) != nil {
			t.Errorf("%q begins with %q, want %q and a uuid", identity, test.replica, test.want)
		}
		if faults := validation.IsDNS1123Subdomain(identity); test.objects && len(faults) > 0 {
			t.Errorf("%q is no name of an object: %q", identity, faults)
		}
	}
}

func TestOnlyTheLastIdentitiesAreRemembered(t *testing.T) {
	i := newIdentities("host", false)
	first := i.next()
	if !i.ours(first) || i.ours("") || i.ours("host") {
		t.Error("does not know its own identity from others")
	}
	for range 10 * remembered {
		i.next()
	}
	if len(i.recent) != remembered || cap(i.recent) > 4*remembered || i.ours(first) {
		t.Errorf("remembers %d identities, want %d", len(i.recent), remembered)
	}
}

// A busy process may not look between a renewal that succeeded and the next one, which failed. A confirmation from
// before that success does not say that its sender can write now.
func TestARenewalEndsATroubleAlsoIfTheNextFails(t *testing.T) {
	cfg := DefaultConfig()
	sent := noon.Add(time.Second)
	begins := sent.Add(troubledAfter * cfg.RetryPeriod)
	a := tenure{
		now:     begins.Add(-time.Millisecond),
		grounds: grounds{renewals: renewals{sent: sent, failed: sent.Add(cfg.RetryPeriod)}},
		trouble: trouble{asked: true, heir: "b", since: noon},
	}.aside(cfg)
	if a.cause != nil || a.trouble != (trouble{}) || !a.again.Equal(begins) {
		t.Errorf("looks again at %v, because of %v; the trouble is %+v", a.again, a.cause, a.trouble)
	}
}
