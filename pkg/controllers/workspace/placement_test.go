package workspace

import (
	"strings"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestAClusterGoesWhereThereIsMostRoom(t *testing.T) {
	own := candidate{name: "root", own: true, heard: true, clusters: 5, capacity: 100}
	eu1 := candidate{name: "eu1", heard: true, clusters: 10, capacity: 1000, labels: labels.Set{"region": "eu"}}
	with := func(c candidate, change func(*candidate)) candidate {
		change(&c)
		return c
	}
	cordoned, unheard := func(c *candidate) { c.cordoned = true }, func(c *candidate) { c.heard = false }
	full := func(c *candidate) { c.clusters = c.capacity }
	in := func(region string) func(*tenancyv1alpha1.Workspace) {
		return func(ws *tenancyv1alpha1.Workspace) {
			ws.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}}
		}
	}
	for name, tc := range map[string]struct {
		workspace  *tenancyv1alpha1.Workspace
		candidates []candidate
		want       string
		why        string // what it says; empty: nothing
	}{
		"alone":                       {fresh(), []candidate{own}, "root", ""},
		"alone, and cordoned":         {fresh(), []candidate{with(own, cordoned)}, "", "no shard fits: 1 cordoned"},
		"alone, and elsewhere wanted": {fresh(in("us")), []candidate{own}, "", "no shard fits: 1 not matching the selector region=us"},
		"fewest for its capacity":     {fresh(), []candidate{own, eu1}, "eu1", "it has the most room; others: 1 with less room"},
		"cordoned":                    {fresh(), []candidate{own, with(eu1, cordoned)}, "root", "others: 1 cordoned"},
		"not heard":                   {fresh(), []candidate{own, with(eu1, unheard)}, "root", "others: 1 not heard"},
		"full":                        {fresh(), []candidate{with(own, full), eu1}, "eu1", "others: 1 full"},
		"selected":                    {fresh(in("eu")), []candidate{with(own, func(c *candidate) { c.clusters = 0 }), eu1}, "eu1", "others: 1 not matching the selector region=eu"},
		"selected, and not heard":     {fresh(in("eu")), []candidate{own, with(eu1, unheard)}, "", "no shard fits: 1 not heard, 1 not matching"},
		"as full, by name":            {fresh(), []candidate{with(eu1, func(c *candidate) { c.name = "eu2" }), eu1}, "eu1", "others: 1 with less room"},
		"a selector of no use": {fresh(func(ws *tenancyv1alpha1.Workspace) {
			ws.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}
		}), []candidate{own}, "", "spec.location.selector cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			got := place(tc.workspace, tc.candidates)
			if got.shard != tc.want || !strings.Contains(got.why, tc.why) || tc.why == "" && got.why != "" {
				t.Errorf("on %q because %q; want %q because %q", got.shard, got.why, tc.want, tc.why)
			}
			// Tenants read why, and operators the details.
			for _, c := range tc.candidates {
				if strings.Contains(got.why, c.name) || got.why != "" && tc.why != "spec.location.selector cannot be used" && !strings.Contains(got.details, c.name) {
					t.Errorf("%s: why %q, details %q", c.name, got.why, got.details)
				}
			}
		})
	}
}

// What is assigned to a shard that has just died waits for its return, however long that takes: no workspace is
// assigned twice.
func TestNothingIsAssignedToAShardWhoseWatchesHaveJustBroken(t *testing.T) {
	member := func(in, name string) *corev1alpha1.Shard {
		s := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", Annotations: map[string]string{"kcp.io/cluster": in}}}
		s.Status.Capacity = corev1.ResourceList{clusters.CapacityClusters: resource.MustParse("10")}
		return s
	}
	others := controllers.NewShards("here", nil)
	others.Members.Add("there", controllertest.Informer(t, controllertest.NewSource(member("system:shards", "there")), nil))
	s := newShards("here", controllers.Informers{
		Shards: controllertest.Informer(t, controllertest.NewSource(member("system:shards", "here"), member("system:shards", "there")), nil),
		LogicalClusters: controllertest.Informer(t, controllertest.NewSource(&corev1alpha1.LogicalCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{"kcp.io/cluster": "root"}},
		}), nil),
	}, others)
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"it is not heard yet", func() {}, "here"},
		{"it is heard", func() { others.Contact.Set("there", true) }, "there"},
		{"a watch has broken", func() { others.Contact.Waver("there") }, "here"},
		{"the watch is open again", func() { others.Contact.Set("there", true) }, "there"},
	} {
		if step.do(); place(&tenancyv1alpha1.Workspace{}, s.candidates()).shard != step.want {
			t.Errorf("%s: %+v", step.what, place(&tenancyv1alpha1.Workspace{}, s.candidates()))
		}
	}
}
