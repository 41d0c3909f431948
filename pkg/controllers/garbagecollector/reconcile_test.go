package garbagecollector

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func ownedBy(states ...ownerState) []ownership {
	owners := make([]ownership, len(states))
	for i, state := range states {
		owners[i] = ownership{metav1.OwnerReference{UID: types.UID(rune('a' + i))}, state}
	}
	return owners
}

func with(finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers}}
}

func TestAnObjectGoesWhenTheLastOwnerHasGone(t *testing.T) {
	background := verdict{remove: true, policy: metav1.DeletePropagationBackground}
	for name, tc := range map[string]struct {
		obj                       *metav1.PartialObjectMetadata
		owners                    []ownership
		dependents, dependentWait bool
		want                      verdict
	}{
		"no owner":                          {with(), nil, false, false, verdict{}},
		"owner there":                       {with(), ownedBy(solid), false, false, verdict{}},
		"owner gone":                        {with(), ownedBy(absent), false, false, background},
		"one of two gone":                   {with(), ownedBy(solid, absent), false, false, verdict{unlink: []types.UID{"b"}}},
		"one there, one waiting":            {with(), ownedBy(waiting, solid), false, false, verdict{unlink: []types.UID{"a"}}},
		"all gone":                          {with(), ownedBy(absent, absent), false, false, background},
		"owner waits for it":                {with(), ownedBy(waiting), false, false, background},
		"owner waits, it has dependents":    {with(), ownedBy(waiting, absent), true, false, verdict{remove: true, policy: metav1.DeletePropagationForeground}},
		"owner waits for a circle":          {with(), ownedBy(waiting), true, true, verdict{remove: true, policy: metav1.DeletePropagationForeground, unblock: true}},
		"owner gone, it has dependents":     {with(), ownedBy(absent), true, false, background},
		"owner of a kind that is not known": {with(), ownedBy(unknowable), false, false, verdict{}},
		"one gone, one not known":           {with(), ownedBy(absent, unknowable), false, false, verdict{}},
		"it orphans":                        {with("orphan"), ownedBy(absent), true, false, verdict{remove: true, policy: metav1.DeletePropagationOrphan}},
		"it waits for its own":              {with("foregroundDeletion"), ownedBy(absent), true, false, verdict{remove: true, policy: metav1.DeletePropagationForeground}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.obj, tc.owners, tc.dependents, tc.dependentWait)
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(verdict{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReferencesAreRemovedAndUnblockedOneByOne(t *testing.T) {
	obj := with()
	obj.OwnerReferences = []metav1.OwnerReference{{UID: "a", BlockOwnerDeletion: ptr.To(true)}, {UID: "b"}, {UID: "c", BlockOwnerDeletion: ptr.To(false)}}
	if d := cmp.Diff([]metav1.OwnerReference{{UID: "b"}}, unlinked(obj, "a", "c")); d != "" {
		t.Error(d)
	}
	if !blocks(obj, "a") || blocks(obj, "b") || blocks(obj, "c") || blocks(obj, "d") {
		t.Error("exactly a is blocked by obj")
	}
	if !anyBlocks(obj) {
		t.Error("obj blocks an owner")
	}
	obj.OwnerReferences = unblocked(obj)
	if anyBlocks(obj) || len(obj.OwnerReferences) != 3 {
		t.Errorf("unblocked: %+v", obj.OwnerReferences)
	}
}

func TestEqualUIDsOfTwoClustersNeverMeet(t *testing.T) {
	store := newStore(configMaps)
	for _, cluster := range []string{"x", "y"} {
		store.create(configMaps.GVR, in(cluster, "o"))
		store.create(configMaps.GVR, in(cluster, "d", by("o")))
	}
	all := store.all(t)
	c := &controller{all: all, informers: all.Metadata, custom: all.CustomObjects, resources: []controllers.Resource{configMaps}}
	got := c.dependents(nodeOf(configMaps.GVR, in("x", "o")))
	if want := []node{nodeOf(configMaps.GVR, in("x", "d"))}; !slices.Equal(got, want) {
		t.Errorf("dependents in x: %v, want %v", got, want)
	}
}

func TestOwnersAreLookedForInTheDependentsOwnPlace(t *testing.T) {
	configMaps := controllers.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true}
	namespaces := controllers.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}
	c := &controller{all: controllertest.WithCustom(t, controllers.Informers{}, nil, nil), kinds: map[schema.GroupKind]controllers.Resource{{Kind: "ConfigMap"}: configMaps, {Kind: "Namespace"}: namespaces}}
	within := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", Annotations: map[string]string{"kcp.io/cluster": "x"}}}
	without := within.DeepCopy()
	without.Namespace = ""
	for name, tc := range map[string]struct {
		obj  *metav1.PartialObjectMetadata
		ref  metav1.OwnerReference
		want clusters.Key
		ok   bool
	}{
		"same namespace":                  {within, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "o"}, clusters.Key{Cluster: "x", Namespace: "n", Name: "o"}, true},
		"no namespace":                    {within, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "o"}, clusters.Key{Cluster: "x", Name: "o"}, true},
		"a version that is not served":    {without, metav1.OwnerReference{APIVersion: "v2", Kind: "Namespace", Name: "o"}, clusters.Key{Cluster: "x", Name: "o"}, true},
		"namespaced owner of one without": {without, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "o"}, clusters.Key{}, false},
		"unknown kind":                    {within, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "o"}, clusters.Key{}, false},
		"malformed":                       {within, metav1.OwnerReference{APIVersion: "a/b/c", Kind: "ConfigMap", Name: "o"}, clusters.Key{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := c.locate(tc.obj, tc.ref)
			if at.key != tc.want || ok != tc.ok {
				t.Errorf("got %v, %v; want %v, %v", at.key, ok, tc.want, tc.ok)
			}
		})
	}
}
