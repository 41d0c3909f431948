package fence

import (
	"net/http"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

type recorded struct{ sent *http.Request }

func (r *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	r.sent = req
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestTheTransportSendsTheTokenAndLeavesTheRequest(t *testing.T) {
	wrap := Transport(Of(sound))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(Header, "what somebody else put there")
	next := &recorded{}
	resp, err := wrap(next).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got, err := Parse(next.sent.Header.Values(Header)); err != nil || got != sound {
		t.Errorf("sent %v, %v", got, err)
	}
	if req.Header.Get(Header) != "what somebody else put there" {
		t.Error("the caller's request was changed")
	}
}

func TestAContextCarriesAToken(t *testing.T) {
	if got := From(t.Context()); !got.IsZero() {
		t.Errorf("got %v from a context without one", got)
	}
	if got := From(With(t.Context(), sound)); got != sound {
		t.Errorf("got %v", got)
	}
}

func TestATokenIsOfALeaseThatIsOnesOwn(t *testing.T) {
	lease := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: sound.Namespace, Name: sound.Name, UID: sound.UID, Annotations: map[string]string{"kcp.io/cluster": sound.Cluster.String()},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &sound.Holder, LeaseTransitions: ptr.To(int32(sound.Epoch))},
		}
		change(l)
		return l
	}
	if got, err := Acquired(lease(func(*coordinationv1.Lease) {}), sound.Holder); err != nil || got != sound {
		t.Errorf("%v, %v", got, err)
	}
	first, err := Acquired(lease(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }), sound.Holder)
	if err != nil || first.Epoch != 0 {
		t.Errorf("as client-go creates it: %v, %v", first, err)
	}
	// A Lease does not show whether its server has a guard, so the caller says so.
	plain := func(l *coordinationv1.Lease) { l.Annotations = nil }
	want := sound
	want.Cluster = ""
	if got, err := Acquired(lease(plain), sound.Holder, WithoutClusters()); err != nil || got != want {
		t.Errorf("of a server without clusters: %v, %v", got, err)
	}
	if _, err := Acquired(lease(plain), "another", WithoutClusters()); err == nil {
		t.Error("of a server without clusters, held by another: no error")
	}
	for name, change := range map[string]func(*coordinationv1.Lease){
		"held by another":            func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("another") },
		"held by nobody":             func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"of another kind of cluster": plain,
	} {
		if got, err := Acquired(lease(change), sound.Holder); err == nil || !got.IsZero() {
			t.Errorf("%s: %v", name, got)
		}
	}
}
