package election

import (
	"math"
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// leaseOf is a Lease of uid "u", renewed at a time that means nothing to us.
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
	held := observation{lease: leaseOf("h", 1, 0), revision: "1", since: noon}
	short := held
	short.lease = held.lease.DeepCopy()
	short.lease.Spec.LeaseDurationSeconds = ptr.To[int32](3)
	for name, test := range map[string]struct {
		seen       observation
		after      time.Duration
		mine, dead bool
		want       action
		until      time.Time
	}{
		"nothing known":                 {want: wait},
		"no Lease":                      {seen: observation{revision: "1"}, want: win},
		"no holder":                     {seen: observation{lease: leaseOf("", 1, 0), revision: "1", since: noon}, want: win},
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
			w = w.next(v, observation{highest: l.highest, before: l.before}, test.elects, now)
		}
		if got := w.takeover(); got.Trigger != test.want || got.Decided != noon.Add(test.decided) || got.Symptom != got.Decided {
			t.Errorf("%s: %+v, want %s after %v", name, got, test.want, test.decided)
		}
	}
}

func TestAnObservationKeepsItsTimeWhileNoSignOfLifeChanges(t *testing.T) {
	first, _ := observation{}.next(leaseOf("h", 4, 7), "10", noon)
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
		if news != test.news || !got.since.Equal(test.since) {
			t.Errorf("%s: news %v since %v, want %v since %v", name, news, got.since, test.news, test.since)
		}
		if got.highest < 4 {
			t.Errorf("%s: the highest epoch seen is %d, want at least 4", name, got.highest)
		}
	}
}

func TestAPinHoldsWhileUidHolderAndEpochDo(t *testing.T) {
	p := pin{uid: "u", holder: "h", epoch: 4}
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
		if err := p.check(test.lease); (err == nil) != test.holds || (err != nil && causeOf(err) != Deposed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPresenceOfAnotherHolderCountsAsAbsent(t *testing.T) {
	lease := leaseOf("h", 1, 0)
	for _, text := range []string{"", "{", "null", `[]`, `{"holder":"g","process":"p"}`, `{"process":"p"}`} {
		lease.Annotations = map[string]string{presenceAnnotation: text}
		if got := presenceOf(lease); !reflect.DeepEqual(got, presence{}) {
			t.Errorf("%q counts as %v", text, got)
		}
	}
	want := presence{Holder: "h", Process: "p", BootID: "b", Mode: modeUnfenced, LastStepDown: "why"}
	want.write(lease)
	if got := presenceOf(lease); !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, read %v", want, got)
	}
	if got := presenceOf(freed(lease, ending{why: "done", failedParts: []string{"a"}})); !reflect.DeepEqual(got, presence{LastStepDown: "done", FailedParts: []string{"a"}}) {
		t.Errorf("a release leaves %v, want the cause alone", got)
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

func TestOnlyTheLastIdentitiesAreRemembered(t *testing.T) {
	i := identities{hostname: "host"}
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

func TestTheLastEpochOfALeaseIsRefusedButNotThatOfItsSuccessor(t *testing.T) {
	l := &lock{basis: observation{lease: leaseOf("", 1<<31-1, 0), highest: 1<<31 - 1}}
	if _, err := l.nextEpoch(); err == nil {
		t.Error("an epoch that overflows is not refused")
	}
	l.basis.lease = nil
	if epoch, err := l.nextEpoch(); err != nil || epoch != 1 {
		t.Errorf("a new Lease gets epoch %d, %v; want 1", epoch, err)
	}
	l.basis.lease = leaseOf("", 1, 0)
	if epoch, err := l.nextEpoch(); err != nil || epoch != 2 {
		t.Errorf("after epoch 1 of the new Lease comes epoch %d, %v; want 2", epoch, err)
	}
}

// renewing is a claim whose renewals went like that.
type renewing struct {
	unelected
	went renewals
}

func (r renewing) renewed() renewals { return r.went }

// A busy process may not look until a renewal that succeeded was followed by one that failed. Who could write the Lease before that
// has not said that it can now.
func TestARenewalEndsATroubleAlsoIfTheNextFails(t *testing.T) {
	e := &Elector{cfg: DefaultConfig()}
	before := trouble{asked: true, heir: "b", since: noon}
	sent := noon.Add(time.Second)
	c := renewing{went: renewals{sent: sent, failed: sent.Add(e.cfg.RetryPeriod)}}
	begins := sent.Add(troubledAfter * e.cfg.RetryPeriod)
	again, cause := e.stepAside(c, &before, begins.Add(-time.Millisecond))
	if cause != nil || before != (trouble{}) || !again.Equal(begins) {
		t.Errorf("looks again at %v, because of %v; the trouble is %+v", again, cause, before)
	}
}
