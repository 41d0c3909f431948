package election

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Everybody who may write the Lease may write any presence. A presence says nothing about a holder that it does not
// name. A standby's judgement stays within bounds, whatever the presence says. What the next holder makes of it reads
// back as it was written.
func FuzzPresence(f *testing.F) {
	f.Add("h", `{"holder":"h","mode":"fenced","electionMode":"lease","probe":{"address":"127.0.0.1:1","key":"k"}}`, byte(Dead))
	f.Add("h", `{"holder":"h","mode":"fenced","suspicions":3,"presumedDead":"g","standbyPriority":2147483647}`, byte(Silent))
	f.Add("h", `{"holder":"h","electionMode":"for-life","owner":"u","life":"replica-1"}`, byte(Alive))
	f.Add("", `{"holder":"","failedParts":["a"],"failed":true,"preferred":"r","alone":true,"suspicions":-9223372036854775808}`, byte(NoSign))
	f.Add("h", `{"holder":"h","mode":"unfenced","succession":"on-refusal"}`, byte(Dead))
	f.Add("h", `{"holder":"other"}`, byte(NoSign))
	f.Add("h", `[]`, byte(NoSign))
	f.Add("h", `{"suspicions":1e999}`, byte(NoSign))
	f.Fuzz(func(t *testing.T, holder, text string, sign byte) {
		held := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "u", ResourceVersion: "7", Annotations: map[string]string{lease.PresenceAnnotation: text}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To[int32](1)},
		}
		p := lease.PresenceOf(held)
		if p.Holder != "" && p.Holder != holder {
			t.Fatalf("it is %q's, and taken for %q's", p.Holder, holder)
		}

		view := lease.NewView(logr.Discard(), func(string) bool { return false })
		view.See(held)
		seen, _ := view.Latest()
		now := seen.Since
		const fallback = 15 * time.Second
		v := judge(seen, now, fallback, knowledge{
			news: News{Sign: Sign(sign), Since: now}, fenced: p.Fencing == lease.Fenced, risked: p.Succession == lease.OnRefusal, suspect: true, suspicions: p.Suspicions,
		})
		allowed := p.Fencing == lease.Fenced || p.Succession == lease.OnRefusal && Sign(sign) == Dead
		if v.action == win && holder != "" && !allowed {
			t.Errorf("a holder that is not fenced, and does not allow it, is succeeded: %+v", v)
		}
		if v.unproved && p.Fencing == lease.Fenced {
			t.Errorf("a holder that is fenced is a risk: %+v", v)
		}
		if v.action == wait && !v.until.IsZero() && (v.until.Before(now) || v.until.After(now.Add(fallback))) {
			t.Errorf("a standby waits until %v from now", v.until.Sub(now))
		}

		free := freed(held, ending{lasted: time.Second})
		if n := lease.PresenceOf(free).Suspicions; n < 0 || n > mostSuspicions+1 {
			t.Errorf("%d suspicions go on", n)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		p.WriteTo(held)
		read, _ := lease.PresenceOn(held)
		again, err := json.Marshal(read)
		if err != nil || string(again) != string(written) {
			t.Errorf("written as %s, read as %s", written, again)
		}
	})
}
