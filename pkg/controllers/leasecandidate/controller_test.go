package leasecandidate

import (
	"math"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/election/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Which Leases the controller leaves alone, and what it does about one that has a candidate that it has seen come.
func TestWhatIsWritten(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "n", Annotations: map[string]string{"kcp.io/cluster": "root"}}
	}
	work := clusters.Key{Cluster: "root", Namespace: "n", Name: "work"}
	for name, c := range map[string]struct {
		token  fence.Token
		lease  *coordinationv1.Lease
		verb   string // of the only write; empty: there is none
		failed bool
	}{
		"no Lease: it is made":              {verb: "create"},
		"a free Lease is given":             {lease: &coordinationv1.Lease{ObjectMeta: meta("work")}, verb: "update"},
		"the Lease that it runs under":      {token: fence.Token{Cluster: "root", Namespace: "n", Name: "work"}},
		"a Lease of that name in another":   {token: fence.Token{Cluster: "other", Namespace: "n", Name: "work"}, verb: "create"},
		"a Lease that has no epoch left":    {lease: &coordinationv1.Lease{ObjectMeta: meta("work"), Spec: coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](math.MaxInt32)}}, failed: true},
		"a Lease that has one more epoch":   {lease: &coordinationv1.Lease{ObjectMeta: meta("work"), Spec: coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](math.MaxInt32 - 1)}}, verb: "update"},
		"a Lease that a plain elector does": {lease: &coordinationv1.Lease{ObjectMeta: meta("work"), Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}}},
	} {
		t.Run(name, func(t *testing.T) {
			leases, kube := controllertest.NewSource[*coordinationv1.Lease](), fake.NewClientset()
			if c.lease != nil {
				leases = controllertest.NewSource(c.lease)
				kube = fake.NewClientset(c.lease)
			}
			candidates := controllertest.NewSource(&coordinationv1beta1.LeaseCandidate{ObjectMeta: meta("a"), Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: "work", BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", Strategy: coordinationv1.OldestEmulationVersion,
			}})
			deps := controllers.Deps{Token: c.token, Clients: controllers.Clients{Kube: kube}, Informers: controllers.Informers{
				Leases:          controllertest.Informer(t, leases, nil),
				LeaseCandidates: controllertest.Informer(t, candidates, controllers.CandidateIndexers()),
			}}
			<-deps.Informers.Leases.Synced()
			<-deps.Informers.LeaseCandidates.Synced()
			made, err := construct(t.Context(), deps)
			if err != nil {
				t.Fatal(err)
			}
			made.(*controller).old = nil // it came just now
			if err := made.(*controller).reconcile(t.Context(), work); (err != nil) != c.failed {
				t.Errorf("error %v, want one: %t", err, c.failed)
			}
			var verbs []string
			for _, a := range kube.Actions() {
				verbs = append(verbs, a.GetVerb())
			}
			if len(verbs) > 1 || len(verbs) == 0 && c.verb != "" || len(verbs) == 1 && verbs[0] != c.verb {
				t.Errorf("writes %q, want %q", verbs, c.verb)
			}
		})
	}
}
