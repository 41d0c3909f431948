package leasecandidate

import (
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// object is a candidate's as its own clock has it.
func object(renewed, pinged time.Duration) *coordinationv1beta1.LeaseCandidate {
	c := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	c.Spec.RenewTime = &metav1.MicroTime{Time: in(renewed)}
	if pinged != 0 {
		c.Spec.PingTime = &metav1.MicroTime{Time: in(pinged)}
	}
	return c
}

func TestWhatIsKnownOfACandidate(t *testing.T) {
	type look struct {
		after        time.Duration // since the first
		object       *coordinationv1beta1.LeaseCandidate
		heard, asked time.Duration // since the first look; negative: never
	}
	const never = -1
	const s = time.Second
	for name, looks := range map[string][]look{
		"what is there at first is of any age":         {{0, object(0, 0), never, never}},
		"what comes later has just come":               {{0, nil, 0, 0}, {s, object(0, 0), s, never}},
		"a renewal is a sign":                          {{0, object(0, 0), never, never}, {s, object(s, 0), s, never}},
		"it is one whatever the candidate's clock has": {{0, object(0, 0), never, never}, {s, object(-time.Hour, 0), s, never}},
		"the same renewal is none again":               {{0, object(0, 0), never, never}, {s, object(s, 0), s, never}, {2 * s, object(s, 0), s, never}},
		"a question from before may be of any age":     {{0, object(0, s), never, 0}},
		"a question is asked when it is seen":          {{0, object(0, 0), never, never}, {s, object(0, s), never, s}, {2 * s, object(0, s), never, s}},
		"an answer ends it":                            {{0, object(0, s), never, 0}, {s, object(2*s, s), s, never}},
		"so does one of a clock that was set back":     {{0, object(0, s), never, 0}, {s, object(-s, s), s, never}, {2 * s, object(-s, s), s, never}},
		"a later question is another":                  {{0, object(0, s), never, 0}, {s, object(2*s, 3*s), s, s}},
	} {
		t.Run(name, func(t *testing.T) {
			m := memory{old: map[types.UID]bool{"a": looks[0].object != nil}}
			for i, l := range looks {
				var all []*coordinationv1beta1.LeaseCandidate
				if l.object != nil {
					all = append(all, l.object)
				}
				e := m.look(nil, all, in(l.after))
				if l.object == nil {
					continue
				}
				c := e.candidates[0]
				if want := instant(l.heard); !c.heard.Equal(want) {
					t.Errorf("look %d: heard at %v, want %v", i+1, c.heard, want)
				}
				if want := instant(l.asked); !c.asked.Equal(want) {
					t.Errorf("look %d: asked at %v, want %v", i+1, c.asked, want)
				}
			}
		})
	}
}

// instant is so long after the first look; the zero time for what never was.
func instant(since time.Duration) time.Time {
	if since < 0 {
		return time.Time{}
	}
	return in(since)
}

// Otherwise nobody could be elected for the new one either, for as long as there are candidates.
func TestALeaseThatIsDeletedWithoutAnEpochLeftBeginsAnew(t *testing.T) {
	for _, last := range []int32{7, math.MaxInt32} {
		var m memory
		exhausted := heldBy("")
		exhausted.Spec.LeaseTransitions = &last
		candidates := []*coordinationv1beta1.LeaseCandidate{object(0, 0)}
		m.look(exhausted, candidates, now)
		m.look(nil, candidates, now)
		made := decision{elect: "a"}.write(nil, m.epoch, now)
		want := last + 1
		if last == math.MaxInt32 {
			want = 1
		}
		if got := *made.Spec.LeaseTransitions; got != want {
			t.Errorf("epoch %d after %d and a deletion, want %d", got, last, want)
		}
	}
}

func TestWhatIsKnownOfALease(t *testing.T) {
	lease := func(uid, holder string, epoch int32, renewed time.Duration) *coordinationv1.Lease {
		l := heldBy(holder)
		l.UID, l.Spec.LeaseTransitions, l.Spec.RenewTime = "1", &epoch, &metav1.MicroTime{Time: in(renewed)}
		if uid != "" {
			l.UID = "2"
		}
		return l
	}
	labelled := lease("", "a", 3, 0)
	labelled.Labels = map[string]string{"a": "b"}
	for name, c := range map[string]struct {
		first, then *coordinationv1.Lease
		changed     bool
		left        bool // a candidate of name a
	}{
		"nothing":                      {nil, nil, false, false},
		"made":                         {nil, lease("", "a", 1, 0), true, false},
		"the same":                     {lease("", "a", 3, 0), lease("", "a", 3, 0), false, false},
		"a label":                      {lease("", "a", 3, 0), labelled, false, false},
		"renewed":                      {lease("", "a", 3, 0), lease("", "a", 3, time.Second), true, false},
		"renewed by a clock set back":  {lease("", "a", 3, 0), lease("", "a", 3, -time.Hour), true, false},
		"acquired anew":                {lease("", "a", 3, 0), lease("", "a", 4, 0), true, false},
		"made anew":                    {lease("", "a", 3, 0), lease("again", "a", 3, 0), true, false},
		"taken":                        {lease("", "a", 3, 0), lease("", "b", 4, 0), true, true},
		"released":                     {lease("", "a", 3, 0), lease("", "", 3, 0), true, true},
		"deleted":                      {lease("", "a", 3, 0), nil, true, true},
		"released, and deleted":        {lease("", "", 3, 0), nil, false, false},
		"free, and touched":            {lease("", "", 3, 0), lease("", "", 3, time.Second), false, false},
		"held by one who left earlier": {lease("", "", 3, 0), lease("", "a", 4, 0), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory
			candidates := []*coordinationv1beta1.LeaseCandidate{object(0, 0)}
			m.look(c.first, candidates, now)
			e := m.look(c.then, candidates, in(time.Second))
			if e.seen.Equal(now) == c.changed {
				t.Errorf("seen at %v", e.seen)
			}
			if left := !e.candidates[0].left.IsZero(); left != c.left {
				t.Errorf("the candidate left: %t, want %t", left, c.left)
			}
			var highest int32
			for _, l := range []*coordinationv1.Lease{c.first, c.then} {
				if l != nil {
					highest = max(highest, ptr.Deref(l.Spec.LeaseTransitions, 0))
				}
			}
			if m.epoch != highest {
				t.Errorf("the highest epoch is %d, want %d", m.epoch, highest)
			}
		})
	}
}
