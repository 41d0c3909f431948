package garbagecollector

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

var configMaps = controllers.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true}

// in is a ConfigMap in namespace n. Its uid is its name, in every cluster.
func in(cluster, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, UID: uid(name), Annotations: map[string]string{"kcp.io/cluster": cluster}, OwnerReferences: owners,
	}}
}

func by(owner string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: uid(owner), BlockOwnerDeletion: ptr.To(true)}
}

func collector(t *testing.T, s *store) *controller {
	t.Helper()
	c, err := construct(t.Context(), controllers.Deps{
		Clients:   controllers.Clients{Metadata: s},
		Informers: s.all(t),
		Resources: []controllers.Resource{configMaps},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.(*controller)
}

// start runs a collector for the length of the test.
func start(t *testing.T, s *store) { t.Cleanup(begin(t, s)) }

// begin runs a collector until the returned function is called.
func begin(t *testing.T, s *store) (stop func()) {
	t.Helper()
	c := collector(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() { returned <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-returned; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func (s *store) mustDelete(t *testing.T, cluster, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	ctx := clusters.With(t.Context(), clusters.KeyOf(in(cluster, name)).Cluster)
	client := s.Resource(configMaps.GVR).Namespace("n")
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

// order waits for so many objects to go and returns their names in that order.
func (s *store) order(n int) []string {
	var names []string
	for range n {
		names = append(names, (<-s.gone).key.Name)
	}
	return names
}

func TestDependentsGoAfterTheirOwnerInTheBackground(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "owner"))
	s.create(configMaps.GVR, in("x", "child", by("owner")))
	s.create(configMaps.GVR, in("x", "grandchild", by("child")))
	s.create(configMaps.GVR, in("x", "other"))
	s.create(configMaps.GVR, in("y", "owner"))
	s.create(configMaps.GVR, in("y", "child", by("owner")))
	start(t, s)
	s.mustDelete(t, "x", "owner", metav1.DeletePropagationBackground)
	if d := cmp.Diff([]string{"owner", "child", "grandchild"}, s.order(3)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"x|n/other", "y|n/child", "y|n/owner"}, s.names()); d != "" {
		t.Error(d)
	}
}

func TestDependentsGoBeforeTheirOwnerInTheForeground(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "owner"))
	s.create(configMaps.GVR, in("x", "child", by("owner")))
	s.create(configMaps.GVR, in("x", "grandchild", by("child")))
	start(t, s)
	s.mustDelete(t, "x", "owner", metav1.DeletePropagationForeground)
	// A child whose own dependents were not known yet when it was deleted goes without waiting for them, as
	// upstream's does; the owner is the last of those it blocks in any case.
	got := s.order(3)
	if slices.Index(got, "child") > slices.Index(got, "owner") {
		t.Errorf("the owner went before its child: %v", got)
	}
}

func TestDependentsOfAnOrphaningOwnerStay(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "owner"))
	s.create(configMaps.GVR, in("x", "child", by("owner"), by("other")))
	s.create(configMaps.GVR, in("x", "other"))
	start(t, s)
	s.mustDelete(t, "x", "owner", metav1.DeletePropagationOrphan)
	s.order(1)
	if d := cmp.Diff([]string{"x|n/child", "x|n/other"}, s.names()); d != "" {
		t.Error(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	child := s.objects[node{resource: configMaps.GVR, key: clusters.KeyOf(in("x", "child"))}]
	if d := cmp.Diff([]metav1.OwnerReference{by("other")}, child.OwnerReferences); d != "" {
		t.Error(d)
	}
}

func TestACircleInTheForegroundEnds(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "a", by("b")))
	s.create(configMaps.GVR, in("x", "b", by("a")))
	start(t, s)
	s.mustDelete(t, "x", "a", metav1.DeletePropagationForeground)
	s.order(2)
	if left := s.names(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatWasPendingWhenALeaderDiedIsCollectedByTheNextI8(t *testing.T) {
	s := newStore(configMaps)
	s.create(configMaps.GVR, in("x", "orphaned", by("owner")))
	reborn := in("x", "owner-again")
	s.create(configMaps.GVR, reborn)
	stale := by("owner-again")
	stale.UID = "another"
	s.create(configMaps.GVR, in("x", "of-a-namesake", stale))
	waiting := in("x", "waiting")
	waiting.DeletionTimestamp, waiting.Finalizers = ptr.To(metav1.Unix(1000, 0)), []string{metav1.FinalizerDeleteDependents}
	s.create(configMaps.GVR, waiting)
	start(t, s)
	got := s.order(3)
	slices.Sort(got)
	if d := cmp.Diff([]string{"of-a-namesake", "orphaned", "waiting"}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"x|n/owner-again"}, s.names()); d != "" {
		t.Error(d)
	}
}

func TestCollectorKeepsTheContractOfControllers(t *testing.T) {
	controllertest.Check(t, Descriptor(), func(t *testing.T) controllers.Deps {
		s := newStore(configMaps)
		s.create(configMaps.GVR, in("x", "orphaned", by("owner")))
		return controllers.Deps{
			Clients:   controllers.Clients{Metadata: s},
			Informers: s.all(t),
			Resources: []controllers.Resource{configMaps},
		}
	})
}

// The sweep leaves out what needs nothing. Whatever the caches show: the reconcile of a key that is left out asks
// nobody anything.
func TestAnObjectThatNeedsNothingIsLeftAlone(t *testing.T) {
	owners := map[string][]metav1.OwnerReference{
		"none": nil, "there": {by("owner")}, "gone": {by("gone")}, "going": {by("going")}, "one of two": {by("owner"), by("gone")},
		"another of its name": {{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "another"}},
		"of an unknown kind":  {{APIVersion: "v1", Kind: "Unknown", Name: "owner", UID: "u"}, by("owner")},
	}
	needed := map[bool]int{}
	for name, refs := range owners {
		for _, finalizer := range []string{"", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
			for _, deleted := range []bool{false, true} {
				obj, going := in("x", "obj", refs...), in("x", "going")
				going.DeletionTimestamp, going.Finalizers = ptr.To(metav1.Unix(1000, 0)), []string{metav1.FinalizerDeleteDependents}
				if finalizer != "" {
					obj.Finalizers = []string{finalizer}
				}
				if deleted {
					obj.DeletionTimestamp = ptr.To(metav1.Unix(1000, 0))
				}
				source := controllertest.NewSource(obj, going, in("x", "owner"))
				all := controllertest.WithCustom(t, controllers.Informers{Metadata: map[schema.GroupVersionResource]cache{
					configMaps.GVR: controllertest.Informer(t, source, controllers.OwnerIndexers[*metav1.PartialObjectMetadata]()),
				}}, nil, nil)
				c := &controller{
					all: all, informers: all.Metadata, custom: all.CustomObjects,
					resources: []controllers.Resource{configMaps},
					kinds:     map[schema.GroupKind]controllers.Resource{{Kind: "ConfigMap"}: configMaps},
				}
				n := nodeOf(configMaps.GVR, obj)
				needs := c.needs(n)
				needed[needs]++
				if asked := asks(t, c, n); asked && !needs {
					t.Errorf("an object needs nothing, and the server is asked: owners %s, finalizer %q, deleted %v", name, finalizer, deleted)
				}
			}
		}
	}
	if needed[true] == 0 || needed[false] == 0 {
		t.Errorf("needed: %v", needed)
	}
}

// asks reports whether the reconcile of a node uses a client: there is none.
func asks(t *testing.T, c *controller, n node) (uses bool) {
	defer func() { uses = recover() != nil }()
	if err := c.reconcile(t.Context(), n); err != nil {
		t.Error(err)
	}
	return false
}
