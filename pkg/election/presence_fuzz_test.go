package election

import (
	"encoding/json"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Whoever may write the Lease may write any presence. It says nothing about a holder that it does not name, a standby judges
// within bounds whatever it says, and what the next holder makes of it is read again as it was written.
func FuzzPresence(f *testing.F) {
	f.Add("h", `{"holder":"h","mode":"fenced","electionMode":"lease","probe":{"address":"127.0.0.1:1","key":"k"}}`, byte(Dead))
	f.Add("h", `{"holder":"h","mode":"fenced","suspicions":3,"presumedDead":"g","standbyPriority":2147483647}`, byte(Silent))
	f.Add("h", `{"holder":"h","electionMode":"for-life","owner":"u","life":"replica-1"}`, byte(Alive))
	f.Add("", `{"holder":"","failedParts":["a"],"failed":true,"preferred":"r","alone":true,"suspicions":-9223372036854775808}`, byte(NoSign))
	f.Add("h", `{"holder":"other"}`, byte(NoSign))
	f.Add("h", `[]`, byte(NoSign))
	f.Add("h", `{"suspicions":1e999}`, byte(NoSign))
	f.Fuzz(func(t *testing.T, holder, text string, sign byte) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "u", ResourceVersion: "7", Annotations: map[string]string{presenceAnnotation: text}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To[int32](1)},
		}
		p, said := saidPresence(lease)
		if said && p.Holder != holder || !said && presenceOf(lease).Holder != "" {
			t.Fatalf("it is %q's, and taken for %q's", p.Holder, holder)
		}

		now := time.Now()
		seen, _ := observation{}.next(lease, lease.ResourceVersion, now)
		const fallback = 15 * time.Second
		v := judge(seen, now, fallback, knowledge{
			news: News{Sign: Sign(sign), Since: now}, fenced: p.Mode == modeFenced, suspect: true, suspicions: p.Suspicions,
		})
		if v.action == win && holder != "" && p.Mode != modeFenced {
			t.Errorf("a holder that is not fenced is succeeded: %+v", v)
		}
		if v.action == wait && !v.until.IsZero() && (v.until.Before(now) || v.until.After(now.Add(fallback))) {
			t.Errorf("a standby waits until %v from now", v.until.Sub(now))
		}

		free := freed(lease, ending{lasted: time.Second})
		if n := presenceOf(free).Suspicions; n < 0 || n > mostSuspicions+1 {
			t.Errorf("%d suspicions go on", n)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		p.write(lease)
		again, err := json.Marshal(*rawPresence(lease))
		if err != nil || string(again) != string(written) {
			t.Errorf("written as %s, read as %s", written, again)
		}
	})
}
