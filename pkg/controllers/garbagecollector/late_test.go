package garbagecollector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// A new leader's cache may show an owner's deletion with a policy that it has no more: what becomes of the dependents
// is the server's to say.
func TestACachedPolicyIsNotCarriedOut(t *testing.T) {
	deleted := func(finalizer string) *metav1.PartialObjectMetadata {
		owner := in("x", "owner")
		owner.DeletionTimestamp, owner.Finalizers = ptr.To(metav1.Unix(1000, 0)), []string{finalizer}
		return owner
	}
	for name, c := range map[string]struct {
		cached, live string
		reconciled   string
	}{
		"dependents are to go, and stay now": {metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents, "child"},
		"dependents are to stay, and go now": {metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(configMaps)
			s.create(configMaps.GVR, deleted(c.cached))
			child := s.create(configMaps.GVR, in("x", "child", by("owner")))
			source := controllertest.NewSource(deleted(c.cached))
			source.Set(in("x", "child", by("owner")))
			s.create(configMaps.GVR, deleted(c.live))
			late, err := construct(t.Context(), controllers.Deps{
				Clients: controllers.Clients{Metadata: s},
				Informers: controllertest.WithCustom(t, controllers.Informers{Metadata: map[schema.GroupVersionResource]cache{
					configMaps.GVR: controllertest.Informer(t, source, controllers.OwnerIndexers[*metav1.PartialObjectMetadata]()),
				}}, nil, nil),
				Resources: []controllers.Resource{configMaps},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := late.(*controller).reconcile(t.Context(), nodeOf(configMaps.GVR, in("x", c.reconciled))); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if d := cmp.Diff(child, s.objects[node{resource: configMaps.GVR, key: clusters.KeyOf(child)}]); d != "" {
				t.Errorf("the child has changed: %s", d)
			}
		})
	}
}
