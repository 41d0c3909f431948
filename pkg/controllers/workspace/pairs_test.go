package workspace

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestANewWorkspaceIsReadyAtOnceWhereThereIsNothingToChoose(t *testing.T) {
	shard := func(name, capacity string, annotations map[string]string) *corev1alpha1.Shard {
		s := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: clusters.SystemShards.String()}}}
		for key, value := range annotations {
			s.Annotations[key] = value
		}
		s.Status.Capacity = corev1.ResourceList{clusters.CapacityClusters: resource.MustParse(capacity)}
		return s
	}
	for name, c := range map[string]struct {
		members []*corev1alpha1.Shard
		in      logicalcluster.Name
		edit    func(*tenancyv1alpha1.Workspace)
		later   bool // admission does not have the LogicalCluster Ready
		hears   *corev1alpha1.Shard
		used    int64  // of the clusters that hears has
		why     string // what the Workspace says against other shards
		url     string // "": it is left to the leader
	}{
		"alone, before the leader has said so": {url: "https://shard/clusters/root:a"},
		"alone":                                {members: []*corev1alpha1.Shard{shard("root", "10", nil)}, url: "https://shard/clusters/root:a"},
		"a child":                              {in: "c7", url: "https://shard/clusters/root:org:a"},
		"alone, and cordoned":                  {members: []*corev1alpha1.Shard{shard("root", "10", map[string]string{clusters.CordonAnnotation: "true"})}},
		"alone, and full":                      {members: []*corev1alpha1.Shard{shard("root", "2", nil)}},
		"another shard is not heard":           {members: []*corev1alpha1.Shard{shard("root", "10", nil), shard("eu1", "10", nil)}, url: "https://shard/clusters/root:a", why: "1 not heard"},
		"another shard has less room":          {members: []*corev1alpha1.Shard{shard("root", "10", nil), shard("eu1", "10", nil)}, hears: shard("eu1", "5", nil), used: 3, url: "https://shard/clusters/root:a", why: "1 with less room"},
		"another shard has more room":          {members: []*corev1alpha1.Shard{shard("root", "10", nil), shard("eu1", "10", nil)}, hears: shard("eu1", "100", nil), used: 3},
		"something is to be waited for":        {later: true},
		"it wants a shard of some kind": {edit: func(ws *tenancyv1alpha1.Workspace) {
			ws.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}},
		"it is mounted": {edit: func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Mount = &tenancyv1alpha1.Mount{} }},
		"it adopts a cluster": {edit: func(ws *tenancyv1alpha1.Workspace) {
			ws.Annotations = map[string]string{clusters.AdoptAnnotation: "eu1/c9"}
		}},
		"the leader has created it as it is":  {edit: func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "c9" }},
		"in a cluster that has none below":    {in: clusters.SystemAdmin},
		"in a cluster that the cache has not": {in: "c9"},
	} {
		t.Run(name, func(t *testing.T) {
			org := parent("root:org")
			org.Annotations[logicalcluster.AnnotationKey] = "c7"
			inform := controllers.Informers{
				LogicalClusters: controllertest.Informer(t, controllertest.NewSource(parent("root"), org), nil),
				Shards:          controllertest.Informer(t, controllertest.NewSource(c.members...), nil),
			}
			var others *controllers.Shards
			if c.hears != nil {
				others = controllers.NewShards("root", nil)
				c.hears.Status.Capacity[clusters.UsedClusters] = *resource.NewQuantity(c.used, resource.DecimalSI)
				others.Members.Add("eu1", controllertest.Informer(t, controllertest.NewSource(c.hears), nil))
				others.Contact.Set("eu1", true)
			}
			p := NewPairs("root", "https://shard", inform, others, func(lc *corev1alpha1.LogicalCluster) {
				if !c.later {
					lc.Status = corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady, URL: "https://shard" + clusters.RequestPath(clusters.KeyOf(lc).Cluster)}
				}
			})
			ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
			if c.edit != nil {
				c.edit(ws)
			}
			if c.in == "" {
				c.in = "root"
			}
			before := ws.DeepCopy()
			begun, lc := p.Begin(c.in, ws)
			if d := cmp.Diff(before, ws); d != "" {
				t.Errorf("the caller's object is changed: %s", d)
			}
			if c.url == "" {
				if begun != nil || lc != nil {
					t.Errorf("it is made: %+v, %+v", begun, lc)
				}
				return
			}
			if begun == nil || lc == nil {
				t.Fatal("it is left to the leader")
			}
			if begun.Spec.URL != c.url || !slices.Equal(begun.Finalizers, []string{clusters.WorkspaceFinalizer}) || begun.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
				t.Errorf("it is not as the leader would make it: %+v", begun)
			}
			if !clusters.IsValidName(clusters.KeyOf(lc).Cluster) || clusters.KeyOf(lc).Cluster.String() != begun.Spec.Cluster || lc.Annotations[core.LogicalClusterPathAnnotationKey] != controllers.PathOf(begun) {
				t.Errorf("its cluster is not as the leader would make it: %+v", lc)
			}
			if placed := conditions.Get(begun, tenancyv1alpha1.WorkspaceScheduled); placed == nil || !strings.Contains(placed.Message, c.why) || (c.why == "") != (begun.Labels[clusters.ShardLabel] == "") {
				t.Errorf("placed by %+v, labels %v, want %q", placed, begun.Labels, c.why)
			}
			// The leader has nothing to do.
			at, _ := inform.LogicalClusters.Get(clusters.Key{Cluster: c.in, Name: corev1alpha1.LogicalClusterName})
			if next := decide(world{workspace: begun, logicalCluster: lc, parent: at, own: "root", shard: "root"}); next != nothing {
				t.Errorf("next: %s", next)
			}
		})
	}
}

// What goes with its LogicalCluster holds nothing, and nobody else has a say in it.
func TestADeletedWorkspaceGoesWithItsClusterUnlessSomebodyElseIsAsked(t *testing.T) {
	type pair struct {
		ws *tenancyv1alpha1.Workspace
		lc *corev1alpha1.LogicalCluster
	}
	for name, c := range map[string]struct {
		edit func(*pair)
		left bool // to the leader
	}{
		"nothing but the two":             {},
		"a label":                         {edit: func(p *pair) { p.ws.Labels = map[string]string{"a": "b"} }},
		"a finalizer of a user":           {left: true, edit: func(p *pair) { p.ws.Finalizers = append(p.ws.Finalizers, "a/b") }},
		"its dependents go first":         {left: true, edit: func(p *pair) { p.ws.Finalizers = append(p.ws.Finalizers, metav1.FinalizerDeleteDependents) }},
		"a finalizer at the cluster":      {left: true, edit: func(p *pair) { p.lc.Finalizers = append(p.lc.Finalizers, "a/b") }},
		"a cluster without its finalizer": {left: true, edit: func(p *pair) { p.lc.Finalizers = nil }},
		"a terminator":                    {left: true, edit: func(p *pair) { p.lc.Spec.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:t"} }},
		"a terminator that is at work":    {left: true, edit: func(p *pair) { p.lc.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:t"} }},
		"the cluster is going by itself":  {left: true, edit: func(p *pair) { p.lc.DeletionTimestamp = &metav1.Time{} }},
		"another workspace's cluster":     {left: true, edit: func(p *pair) { p.lc.Spec.Owner.UID = "2" }},
		"another shard's workspace":       {left: true, edit: func(p *pair) { p.lc.Labels = map[string]string{clusters.OwnerShardLabel: "eu1"} }},
		"a cluster of another shard":      {left: true, edit: func(p *pair) { p.ws.Labels = map[string]string{clusters.ShardLabel: "eu1"} }},
		"no cluster":                      {left: true, edit: func(p *pair) { p.ws.Spec.Cluster = "" }},
		"a cluster that the cache has not": {left: true, edit: func(p *pair) {
			p.ws.Spec.Cluster = "c8"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
				Name: "a", UID: "1", Finalizers: []string{clusters.WorkspaceFinalizer}, Annotations: map[string]string{logicalcluster.AnnotationKey: "root"},
			}}
			ws.Spec.Cluster, ws.Spec.URL = "c7", "https://shard/clusters/root:a"
			lc := controllers.NewLogicalCluster(ws, "")
			lc.Annotations[logicalcluster.AnnotationKey] = "c7"
			of := &pair{ws, lc}
			if c.edit != nil {
				c.edit(of)
			}
			p := NewPairs("root", "https://shard", controllers.Informers{
				LogicalClusters: controllertest.Informer(t, controllertest.NewSource(of.lc), nil),
				Shards:          controllertest.Informer(t, controllertest.NewSource[*corev1alpha1.Shard](), nil),
			}, nil, nil)
			if got := p.End(of.ws); (got == nil) != c.left {
				t.Errorf("goes with %+v", got)
			}
		})
	}
}

// Before the list of shards has come, a shard that is not alone would look as if it were.
func TestNothingIsMadeBeforeTheShardsAreKnown(t *testing.T) {
	p := &Pairs{
		logicalClusters: controllertest.Informer(t, controllertest.NewSource(parent("root")), nil),
		shards:          &shards{own: "root", members: clusters.NewInformer[*corev1alpha1.Shard](controllertest.NewSource[*corev1alpha1.Shard](), nil), countOwn: func() int { return 0 }},
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if begun, lc := p.Begin("root", ws); begun != nil || lc != nil {
		t.Errorf("it is made: %+v, %+v", begun, lc)
	}
}
