package workspace

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestANewWorkspaceIsScheduledAtOnceWhereThereIsNothingToChoose(t *testing.T) {
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
		url     string // "": it is left to the leader
	}{
		"alone, before the leader has said so": {url: "https://shard/clusters/root:a"},
		"alone":                                {members: []*corev1alpha1.Shard{shard("root", "10", nil)}, url: "https://shard/clusters/root:a"},
		"a child":                              {in: "c7", url: "https://shard/clusters/root:org:a"},
		"alone, and cordoned":                  {members: []*corev1alpha1.Shard{shard("root", "10", map[string]string{clusters.CordonAnnotation: "true"})}},
		"alone, and full":                      {members: []*corev1alpha1.Shard{shard("root", "2", nil)}},
		"two shards":                           {members: []*corev1alpha1.Shard{shard("root", "10", nil), shard("eu1", "10", nil)}},
		"it has no name yet":                   {edit: func(ws *tenancyv1alpha1.Workspace) { ws.Name, ws.GenerateName = "", "a-" }},
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
			s := NewScheduler("root", "https://shard", inform)
			ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			if c.edit != nil {
				c.edit(ws)
			}
			if c.in == "" {
				c.in = "root"
			}
			before := ws.DeepCopy()
			s.Schedule(c.in, ws)
			if c.url == "" {
				if ws.Spec.URL != "" || ws.Spec.Cluster != before.Spec.Cluster || len(ws.Finalizers) > 0 {
					t.Errorf("it is scheduled: %+v", ws)
				}
				return
			}
			if ws.Spec.URL != c.url || !clusters.IsValidName(logicalcluster.Name(ws.Spec.Cluster)) || len(ws.Finalizers) != 1 || ws.Finalizers[0] != clusters.WorkspaceFinalizer {
				t.Errorf("it is not scheduled as it should be: %+v", ws)
			}
			if ws.Annotations != nil || ws.Labels != nil {
				t.Errorf("it has more than the leader would give it: %+v", ws.ObjectMeta)
			}
			// The leader goes on as if it had scheduled the Workspace.
			metav1.SetMetaDataAnnotation(&ws.ObjectMeta, logicalcluster.AnnotationKey, c.in.String())
			at, _ := inform.LogicalClusters.Get(clusters.Key{Cluster: c.in, Name: corev1alpha1.LogicalClusterName})
			if next := decide(world{workspace: ws, parent: at, own: "root", shard: "root"}); next != create {
				t.Errorf("next: %s", next)
			}
		})
	}
}

// Before the list of shards has come, a shard that is not alone would look as if it were.
func TestNothingIsScheduledBeforeTheShardsAreKnown(t *testing.T) {
	s := &Scheduler{
		logicalClusters: controllertest.Informer(t, controllertest.NewSource(parent("root")), nil),
		shards:          &shards{own: "root", members: clusters.NewInformer[*corev1alpha1.Shard](controllertest.NewSource[*corev1alpha1.Shard](), nil), countOwn: func() int { return 0 }},
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if s.Schedule("root", ws); ws.Spec.Cluster != "" {
		t.Errorf("it is scheduled: %+v", ws)
	}
}
