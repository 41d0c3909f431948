package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
)

// of is a reference to an object of a custom kind.
func of(kind, owner string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: owner, UID: uid(owner), BlockOwnerDeletion: ptr.To(true)}
}

// remove deletes an object of any resource.
func (s *store) remove(t testing.TB, gvr schema.GroupVersionResource, cluster, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	ctx := clusters.With(context.Background(), clusters.KeyOf(in(cluster, name)).Cluster)
	client := s.Resource(gvr).Namespace("n")
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion}, PropagationPolicy: &policy,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// becomes waits until these objects are left, and no others.
func (s *store) becomes(t testing.TB, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got = s.names(); slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("left (-want +got):\n%s", cmp.Diff(want, got))
}

func TestOwnersAndDependentsMayBeOfAnyKinds(t *testing.T) {
	s := newStore(configMaps)
	var widgets, gadgets schema.GroupVersionResource
	for _, cluster := range []string{"x", "y"} {
		widgets, gadgets = s.define(cluster, "Widget", apiextensionsv1.NamespaceScoped), s.define(cluster, "Gadget", apiextensionsv1.NamespaceScoped)
		s.create(configMaps.GVR, in(cluster, "a"))
		s.create(widgets, in(cluster, "b", by("a")))
		s.create(gadgets, in(cluster, "c", of("Widget", "b")))
		s.create(configMaps.GVR, in(cluster, "d", of("Gadget", "c")))
		s.create(configMaps.GVR, in(cluster, "e", of("Gadget", "c"), by("kept")))
		s.create(configMaps.GVR, in(cluster, "kept"))
	}
	start(t, s)
	s.remove(t, configMaps.GVR, "x", "a", metav1.DeletePropagationBackground)
	s.becomes(t, "x|n/e", "x|n/kept", "y|n/a", "y|n/b", "y|n/c", "y|n/d", "y|n/e", "y|n/kept")
	s.remove(t, widgets, "y", "b", metav1.DeletePropagationOrphan)
	s.becomes(t, "x|n/e", "x|n/kept", "y|n/a", "y|n/c", "y|n/d", "y|n/e", "y|n/kept")
	s.remove(t, gadgets, "y", "c", metav1.DeletePropagationForeground)
	s.becomes(t, "x|n/e", "x|n/kept", "y|n/a", "y|n/e", "y|n/kept")
}

func TestCustomDependentsGoBeforeTheirOwnerInTheForeground(t *testing.T) {
	s := newStore(configMaps)
	widgets := s.define("x", "Widget", apiextensionsv1.NamespaceScoped)
	s.create(configMaps.GVR, in("x", "owner"))
	s.create(widgets, in("x", "child", by("owner")))
	start(t, s)
	s.mustDelete(t, "x", "owner", metav1.DeletePropagationForeground)
	if d := cmp.Diff([]string{"child", "owner"}, s.order(2)); d != "" {
		t.Error(d)
	}
}

// A controller's cache of definitions may be late, and an object may be there before anybody defines the kind of its
// owner.
func TestWhatNobodyCanTellYetIsCollectedOnceTheKindIsDefined(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "unknown", of("Widget", "nobody")))
	s.create(configMaps.GVR, in("x", "other", of("Gadget", "nobody")))
	start(t, s)
	s.create(configMaps.GVR, in("x", "late", of("Widget", "nobody")))
	s.becomes(t, "x|n/late", "x|n/other", "x|n/unknown")
	s.define("y", "Widget", apiextensionsv1.NamespaceScoped)
	s.define("x", "Widget", apiextensionsv1.NamespaceScoped)
	s.becomes(t, "x|n/other")
}

// When a definition is deleted, its objects go first, and then nobody can ask for them.
func TestDependentsOfObjectsWhoseDefinitionGoesAreCollected(t *testing.T) {
	for range 20 { // what comes first is up to the scheduler
		s := newStore(configMaps)
		widgets := s.define("x", "Widget", apiextensionsv1.NamespaceScoped)
		s.create(widgets, in("x", "owner"))
		s.create(configMaps.GVR, in("x", "child", of("Widget", "owner")))
		s.create(configMaps.GVR, in("x", "other", of("Widget", "never-seen")))
		stop := begin(t, s)
		s.becomes(t, "x|n/child", "x|n/owner") // other's owner is absent, as the server says
		s.remove(t, widgets, "x", "owner", metav1.DeletePropagationBackground)
		s.undefine("x", widgets)
		s.becomes(t)
		stop()
	}
}

func TestNothingIsKeptOfWhatHasGone(t *testing.T) {
	s := newStore(configMaps)
	widgets := s.define("x", "Widget", apiextensionsv1.NamespaceScoped)
	c := collector(t, s)
	n := func(name string) node { return nodeOf(configMaps.GVR, in("x", name)) }
	child := s.create(configMaps.GVR, in("x", "child", of("Gadget", "g")))
	if state := c.unlocated(n("child"), child, child.OwnerReferences[0]); state != unknowable || len(c.awaiting.nodes) != 1 {
		t.Errorf("%v, awaiting %v", state, c.awaiting.nodes)
	}
	c.forget(n("child"), child)
	c.departed.add("x", uid("owner"))
	c.forget(n("of-owner"), in("x", "of-owner", of("Widget", "owner")))
	if len(c.awaiting.nodes) != 0 || len(c.departed.owners) != 0 {
		t.Errorf("kept: %v, %v", c.awaiting.nodes, c.departed.owners)
	}
	_ = widgets
}

// Whatever refers to whatever: what has lost all its owners goes, what has one stays, and equal names and uids of
// another cluster do not matter.
func TestWhatHasLostItsOwnersGoesWhateverTheirKinds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newStore(configMaps)
		kinds := map[string]schema.GroupVersionResource{"ConfigMap": configMaps.GVR}
		for _, cluster := range []string{"x", "y"} {
			for _, kind := range []string{"Widget", "Gadget"} {
				kinds[kind] = s.define(cluster, kind, apiextensionsv1.NamespaceScoped)
			}
		}
		type object struct {
			kind   string
			owners []int
		}
		var objects []object
		var all []string
		for n := range rapid.IntRange(1, 8).Draw(r, "objects") {
			o := object{kind: rapid.SampledFrom([]string{"ConfigMap", "Widget", "Gadget"}).Draw(r, "kind")}
			var refs []metav1.OwnerReference
			for owner := range n {
				if rapid.Bool().Draw(r, fmt.Sprintf("%d owns %d", owner, n)) {
					o.owners = append(o.owners, owner)
					ref := by(fmt.Sprint("o", owner))
					if kind := objects[owner].kind; kind != "ConfigMap" {
						ref = of(kind, fmt.Sprint("o", owner))
					}
					refs = append(refs, ref)
				}
			}
			objects = append(objects, o)
			for _, cluster := range []string{"x", "y"} {
				s.create(kinds[o.kind], in(cluster, fmt.Sprint("o", n), refs...))
				all = append(all, fmt.Sprintf("%s|n/o%d", cluster, n))
			}
		}
		victim := rapid.IntRange(0, len(objects)-1).Draw(r, "deleted")
		policy := rapid.SampledFrom([]metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}).Draw(r, "policy")
		gone := map[int]bool{victim: true}
		for n, o := range objects {
			kept := len(o.owners) == 0
			for _, owner := range o.owners {
				kept = kept || !gone[owner]
			}
			gone[n] = gone[n] || !kept
		}
		stop := begin(t, s)
		defer stop()
		s.remove(t, kinds[objects[victim].kind], "x", fmt.Sprint("o", victim), policy)
		s.becomes(t, slices.DeleteFunc(all, func(name string) bool {
			var n int
			_, err := fmt.Sscanf(name, "x|n/o%d", &n)
			return err == nil && gone[n]
		})...)
	})
}
