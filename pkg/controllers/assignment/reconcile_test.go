package assignment

import (
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

var deletedAt = metav1.Unix(1000, 0)

func assignedTo(shard string, edits ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "ws-uid", Labels: map[string]string{clusters.ShardLabel: shard}, Annotations: map[string]string{"kcp.io/cluster": "root"}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: "x7", URL: "https://front/clusters/root:a"},
	}
	for _, edit := range edits {
		edit(ws)
	}
	return ws
}

func deleted(ws *tenancyv1alpha1.Workspace) { ws.DeletionTimestamp = &deletedAt }
func begin(ws *tenancyv1alpha1.Workspace)   { ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady }
func called(name string) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) { ws.Name = name }
}

func in(cluster string) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) { ws.Annotations["kcp.io/cluster"] = cluster }
}

func reborn(ws *tenancyv1alpha1.Workspace) { ws.UID = "another" }

func adopting(cluster string) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) {
		reborn(ws)
		ws.Annotations[clusters.AdoptAnnotation] = "eu1/" + cluster
	}
}

func clusterOf(phase corev1alpha1.LogicalClusterPhaseType, edits ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := controllers.NewLogicalCluster(assignedTo("eu1"), "root")
	lc.Status.Phase = phase
	for _, edit := range edits {
		edit(lc)
	}
	return lc
}

func marked(lc *corev1alpha1.LogicalCluster) { *lc = *orphaned(lc, assigned{shard: "root"}) }
func going(lc *corev1alpha1.LogicalCluster)  { lc.DeletionTimestamp = &deletedAt }
func ofAnother(lc *corev1alpha1.LogicalCluster) {
	lc.Labels[clusters.OwnerShardLabel] = "us1"
}

// I10: of all that can be absent, nothing makes it delete.
func TestEachStateHasOneNextStepI10(t *testing.T) {
	for name, tc := range map[string]struct {
		world world
		want  step
	}{
		"assigned":                      {world{workspace: assignedTo("eu1"), heard: true}, create},
		"assigned, and deleted at once": {world{workspace: assignedTo("eu1", deleted), heard: true}, nothing},
		"its cluster has vanished":      {world{workspace: assignedTo("eu1", begin), heard: true}, nothing},
		"there":                         {world{workspace: assignedTo("eu1"), logicalCluster: clusterOf("Ready"), heard: true}, nothing},
		"deleted":                       {world{workspace: assignedTo("eu1", deleted), logicalCluster: clusterOf("Ready"), heard: true}, remove},
		"deleted, and no longer heard":  {world{workspace: assignedTo("eu1", deleted), logicalCluster: clusterOf("Ready")}, remove},
		"deleted, and going":            {world{workspace: assignedTo("eu1", deleted), logicalCluster: clusterOf("Ready", going), heard: true}, nothing},
		"deleted, another of its name":  {world{workspace: assignedTo("eu1", deleted, reborn), logicalCluster: clusterOf("Ready"), heard: true}, nothing},
		"deleted, and the cluster is another shard's": {world{workspace: assignedTo("eu1", deleted), logicalCluster: clusterOf("Ready", ofAnother), heard: true}, follow},
		"there, and the cluster is another shard's":   {world{workspace: assignedTo("eu1"), logicalCluster: clusterOf("Ready", ofAnother), heard: true}, follow},
		"absent":                               {world{logicalCluster: clusterOf("Ready"), heard: true}, ask},
		"absent, and its shard is not heard":   {world{logicalCluster: clusterOf("Ready")}, nothing},
		"absent, and the cluster is just made": {world{logicalCluster: clusterOf("Scheduling"), heard: true}, nothing},
		"absent, and marked":                   {world{logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"back, and marked":                     {world{workspace: assignedTo("eu1"), logicalCluster: clusterOf("Ready", marked), heard: true}, found},
		"to be adopted":                        {world{workspace: assignedTo("eu1", adopting("x7")), logicalCluster: clusterOf("Ready", marked), heard: true}, adopt},
		"to be adopted, and no orphan":         {world{workspace: assignedTo("eu1", adopting("x7")), logicalCluster: clusterOf("Ready"), heard: true}, nothing},
		"to be adopted, and going":             {world{workspace: assignedTo("eu1", adopting("x7")), logicalCluster: clusterOf("Ready", marked, going), heard: true}, nothing},
		"to be adopted, and gone":              {world{workspace: assignedTo("eu1", adopting("x7")), heard: true}, nothing},
		"to be adopted, by one that goes":      {world{workspace: assignedTo("eu1", adopting("x7"), deleted), logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"to be adopted, but another shard's":   {world{workspace: assignedTo("eu1", adopting("x7")), logicalCluster: clusterOf("Ready", marked, ofAnother), heard: true}, nothing},
		"to be adopted, but another's":         {world{workspace: assignedTo("eu1", adopting("x7"), called("b")), logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"to be adopted, but elsewhere":         {world{workspace: assignedTo("eu1", adopting("x7"), in("c2")), logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"another is to be adopted":             {world{workspace: assignedTo("eu1", adopting("x8")), logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"in its place, and adopting nothing":   {world{workspace: assignedTo("eu1", reborn), logicalCluster: clusterOf("Ready", marked), heard: true}, nothing},
		"adopted, and still marked":            {world{workspace: assignedTo("eu1", adopting("x7")), logicalCluster: adopted(clusterOf("Ready", marked), assignedTo("eu1", reborn)), heard: true}, found},
		"nothing":                              {world{heard: true}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			tc.world.shard = "root"
			if got := decide(tc.world); got != tc.want {
				t.Errorf("decide = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAMarkGoesAsItHasCome(t *testing.T) {
	lc := clusterOf("Ready", marked)
	if len(lc.Status.Conditions) != 1 || lc.Status.Conditions[0].Message == "" {
		t.Errorf("conditions %+v", lc.Status.Conditions)
	}
	if got := unmarked(lc); len(got.Status.Conditions) != 0 {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
}
