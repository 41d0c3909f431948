package workspace

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

const annotation = "kcp.io/cluster"

var deletedAt = metav1.Unix(1000, 0)

// fresh is a Workspace a user has just created in root.
func fresh(edits ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "ws-uid", ResourceVersion: "7", Annotations: map[string]string{annotation: "root"},
	}}
	for _, edit := range edits {
		edit(ws)
	}
	return ws
}

func withCluster(ws *tenancyv1alpha1.Workspace) {
	ws.Finalizers = []string{clusters.WorkspaceFinalizer}
	ws.Spec.Cluster, ws.Spec.URL = "x7", "https://shard/clusters/root:a"
}

func deleted(ws *tenancyv1alpha1.Workspace) { ws.DeletionTimestamp = &deletedAt }

func inSystem(ws *tenancyv1alpha1.Workspace) { ws.Annotations[annotation] = "system:admin" }

// tell returns the Workspace once it says how its cluster is.
func tell(lc *corev1alpha1.LogicalCluster, ws *tenancyv1alpha1.Workspace) *tenancyv1alpha1.Workspace {
	return reported(world{workspace: ws, logicalCluster: lc})
}

func mounted(ws *tenancyv1alpha1.Workspace) { ws.Spec.Mount = &tenancyv1alpha1.Mount{} }

func in(phase corev1alpha1.LogicalClusterPhaseType) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) { ws.Status.Phase = phase }
}

func strangers(phase corev1alpha1.LogicalClusterPhaseType) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{annotation: "x7"}},
		Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "root", UID: ""}},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: phase},
	}
}

func ours(phase corev1alpha1.LogicalClusterPhaseType) *corev1alpha1.LogicalCluster {
	lc := strangers(phase)
	lc.Spec.Owner.UID = "ws-uid"
	return lc
}

func parent(path string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster", Annotations: map[string]string{annotation: "root", "kcp.io/path": path},
	}}
}

func overdue(w world) world {
	w.overdue = true
	return w
}

// elsewhere is what a shard knows of a Workspace whose cluster is on another one, which it hears.
func elsewhere(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) world {
	metav1.SetMetaDataLabel(&ws.ObjectMeta, clusters.ShardLabel, "eu1")
	return world{workspace: ws, logicalCluster: lc, parent: parent("root"), shard: "eu1", elsewhere: true, heard: true}
}

func confirmed(w world) world {
	w.confirmed = true
	return w
}

func unheard(w world) world {
	w.heard = false
	return w
}

func TestEachStateHasOneNextStep(t *testing.T) {
	leaving, blocked, initialized := ours("Ready"), ours("Deleting"), ours("Scheduling")
	leaving.DeletionTimestamp, blocked.DeletionTimestamp = &deletedAt, &deletedAt
	initialized.Spec.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:i"}
	for name, tc := range map[string]struct {
		world world
		want  step
	}{
		"new":                                   {world{workspace: fresh(), parent: parent("root")}, schedule},
		"new, parent unknown":                   {world{workspace: fresh()}, nothing},
		"new, where no workspace can be":        {world{workspace: fresh(inSystem)}, confirm},
		"new, where none can be indeed":         {world{workspace: fresh(inSystem), confirmed: true}, report},
		"new, where one can be after all":       {world{workspace: fresh(inSystem), parent: parent("root"), confirmed: true}, schedule},
		"mounted":                               {world{workspace: fresh(mounted), parent: parent("root"), confirmed: true}, report},
		"bound":                                 {world{workspace: fresh(withCluster), parent: parent("root")}, create},
		"bound, finalizer removed by somebody":  {world{workspace: fresh(withCluster, func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = nil }), logicalCluster: ours("Ready")}, schedule},
		"cluster moved":                         {world{workspace: fresh(withCluster), logicalCluster: ours("Ready"), movedTo: "eu1"}, relocate},
		"cluster moved, and its shard is down":  {world{workspace: fresh(withCluster), logicalCluster: ours("Ready"), elsewhere: true, shard: "us1", movedTo: "eu1"}, relocate},
		"cluster moved, deleted":                {world{workspace: fresh(withCluster, deleted), logicalCluster: ours("Ready"), movedTo: "eu1"}, relocate},
		"cluster in the cache":                  {world{workspace: fresh(withCluster), logicalCluster: ours("Ready")}, confirm},
		"cluster there":                         {world{workspace: fresh(withCluster), logicalCluster: ours("Ready"), confirmed: true}, report},
		"all is told":                           {world{workspace: tell(ours("Ready"), fresh(withCluster)), logicalCluster: ours("Ready")}, nothing},
		"cache of the cluster behind":           {world{workspace: tell(ours("Ready"), fresh(withCluster)), logicalCluster: ours("Initializing")}, confirm},
		"cluster vanished from the cache":       {world{workspace: fresh(withCluster, in("Ready"))}, nothing},
		"cluster not in the cache for long":     {overdue(world{workspace: fresh(withCluster, in("Ready"))}), confirm},
		"cluster vanished":                      {world{workspace: fresh(withCluster, in("Ready")), confirmed: true}, report},
		"deleted before it was bound":           {world{workspace: fresh(deleted, func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = []string{clusters.WorkspaceFinalizer} })}, release},
		"deleted":                               {world{workspace: fresh(withCluster, deleted), logicalCluster: ours("Ready")}, remove},
		"deleted, cluster going":                {world{workspace: fresh(withCluster, deleted), logicalCluster: leaving, confirmed: true}, nothing},
		"deleted, cluster waits to go":          {world{workspace: fresh(withCluster, deleted), logicalCluster: blocked, confirmed: true}, report},
		"cluster just created":                  {world{workspace: fresh(withCluster), logicalCluster: ours("Scheduling"), confirmed: true}, nothing},
		"cluster to be initialized":             {world{workspace: fresh(withCluster), logicalCluster: initialized, confirmed: true}, report},
		"deleted, cluster not in the cache":     {world{workspace: fresh(withCluster, deleted)}, confirm},
		"deleted, cluster gone":                 {world{workspace: fresh(withCluster, deleted), confirmed: true}, release},
		"deleted, another's in the cache":       {world{workspace: fresh(withCluster, deleted), logicalCluster: strangers("Ready")}, confirm},
		"deleted, cluster is another's":         {world{workspace: fresh(withCluster, deleted), logicalCluster: strangers("Ready"), confirmed: true}, release},
		"deleted, finalizers of others only":    {world{workspace: fresh(deleted, func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = []string{"x/y"} })}, nothing},
		"new, and no shard fits":                {world{workspace: fresh(), parent: parent("root"), placement: placement{why: "no shard fits"}}, confirm},
		"new, and no shard fits indeed":         {world{workspace: fresh(), parent: parent("root"), placement: placement{why: "no shard fits"}, confirmed: true}, report},
		"elsewhere, not created yet":            {elsewhere(fresh(withCluster), nil), nothing},
		"elsewhere, not created for long":       {overdue(elsewhere(fresh(withCluster), nil)), confirm},
		"elsewhere, not created indeed":         {confirmed(overdue(elsewhere(fresh(withCluster), nil))), report},
		"elsewhere, told that it is late":       {overdue(elsewhere(reported(overdue(elsewhere(fresh(withCluster), nil))), nil)), nothing},
		"elsewhere, late, and vanished":         {overdue(elsewhere(fresh(withCluster, in("Ready")), nil)), confirm},
		"elsewhere, deleted, and late":          {overdue(elsewhere(fresh(withCluster, deleted), ours("Ready"))), confirm},
		"elsewhere, deleted, and late indeed":   {confirmed(overdue(elsewhere(fresh(withCluster, deleted), ours("Ready")))), report},
		"elsewhere, Scheduling":                 {elsewhere(fresh(withCluster), ours("Scheduling")), nothing},
		"elsewhere, Ready":                      {elsewhere(fresh(withCluster), ours("Ready")), confirm},
		"elsewhere, and deleted":                {elsewhere(fresh(withCluster, deleted), ours("Ready")), nothing},
		"elsewhere, deleted and going":          {elsewhere(fresh(withCluster, deleted), leaving), nothing},
		"elsewhere, deleted and gone":           {elsewhere(fresh(withCluster, deleted), nil), confirm},
		"elsewhere, deleted and gone indeed":    {confirmed(elsewhere(fresh(withCluster, deleted), nil)), release},
		"elsewhere, deleted there":              {elsewhere(fresh(withCluster, in("Ready")), leaving), confirm},
		"elsewhere, deleted there indeed":       {confirmed(elsewhere(fresh(withCluster, in("Ready")), leaving)), follow},
		"elsewhere, vanished from the cache":    {elsewhere(fresh(withCluster, in("Ready")), nil), confirm},
		"elsewhere, not created nor heard":      {unheard(elsewhere(fresh(withCluster), nil)), report},
		"elsewhere, Ready, not heard":           {unheard(elsewhere(fresh(withCluster, in("Ready")), nil)), nothing},
		"elsewhere, going, not heard":           {unheard(elsewhere(fresh(withCluster, in("Ready")), leaving)), nothing},
		"elsewhere, deleted, not heard":         {unheard(elsewhere(fresh(withCluster, deleted), nil)), report},
		"to adopt, and it may not":              {world{workspace: fresh(adopting), parent: parent("root"), placement: placement{why: "it cannot adopt"}, confirmed: true}, report},
		"to adopt, and it may":                  {world{workspace: fresh(adopting), parent: parent("root"), placement: placement{shard: "eu1", adopted: "x7"}}, schedule},
		"adopting, its new shard has not seen":  {adoptive(elsewhere(fresh(withCluster, adopting), orphan())), nothing},
		"adopting, its new shard is half done":  {adoptive(elsewhere(fresh(withCluster, adopting), orphan(adoptedByUs))), nothing},
		"adopting, and adopted":                 {adoptive(elsewhere(fresh(withCluster, adopting), orphan(adoptedByUs, find))), confirm},
		"adopting, and it has gone":             {adoptive(elsewhere(fresh(withCluster, adopting), nil)), confirm},
		"adopting, and it has gone indeed":      {confirmed(adoptive(elsewhere(fresh(withCluster, adopting), nil))), report},
		"adopting, and it goes":                 {adoptive(elsewhere(fresh(withCluster, adopting), orphan(going))), confirm},
		"adopting, and deleted":                 {adoptive(elsewhere(fresh(withCluster, adopting, deleted), orphan())), confirm},
		"adopting, and deleted indeed":          {confirmed(adoptive(elsewhere(fresh(withCluster, adopting, deleted), orphan()))), release},
		"adopting, and not heard":               {unheard(adoptive(elsewhere(fresh(withCluster, adopting), nil))), report},
		"deleted, of the same uid in a cluster": {world{workspace: fresh(withCluster, deleted, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[annotation] = "other" }), logicalCluster: ours("Ready"), confirmed: true}, release},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.world.workspace.Spec.Cluster == "" && tc.world.placement == (placement{}) {
				tc.world.placement.shard = "root"
			}
			if got := decide(tc.world); got != tc.want {
				t.Errorf("decide = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestACrashBetweenStepsNeitherLeaksNorDoublesACluster(t *testing.T) {
	w := world{workspace: fresh(), parent: parent("root")}
	w.workspace = scheduled(w, "https://shard", "x7")
	again := scheduled(w, "https://elsewhere", "other")
	if !apiequality.Semantic.DeepEqual(w.workspace, again) {
		t.Errorf("a second leader changed what the first had bound:\n%s", cmp.Diff(w.workspace, again))
	}
	if w.workspace.Spec.Cluster != "x7" || w.workspace.Spec.URL != "https://shard/clusters/root:a" || !slices.Contains(w.workspace.Finalizers, clusters.WorkspaceFinalizer) {
		t.Errorf("cluster, URL and finalizer are not all in one write: %+v", w.workspace)
	}
	if w.workspace.ResourceVersion != "7" {
		t.Error("the write does not carry the resourceVersion it was decided on")
	}
	if got := decide(w); got != create {
		t.Errorf("the next leader's step is %s, want create", got)
	}
}

// A Workspace whose cluster is on its own shard says so by no label.
func TestAWorkspaceSaysWhereItsClusterHasMoved(t *testing.T) {
	ws := fresh(withCluster, func(ws *tenancyv1alpha1.Workspace) {
		ws.Labels = map[string]string{clusters.ShardLabel: "us1", "kept": "yes"}
		ws.Annotations[clusters.PlacementAnnotation] = "it has the most room"
		ws.Annotations[clusters.ReturnAnnotation] = "eu1"
	})
	for to, want := range map[string]string{"eu1": "eu1", "root": ""} {
		out := relocated(world{workspace: ws, own: "root", movedTo: to})
		if out.Labels[clusters.ShardLabel] != want || out.Labels["kept"] != "yes" || !strings.Contains(out.Annotations[clusters.PlacementAnnotation], to) {
			t.Errorf("moved to %s: labels %v, annotations %v", to, out.Labels, out.Annotations)
		}
		if _, still := out.Annotations[clusters.ReturnAnnotation]; still {
			t.Errorf("moved to %s: it is to be told again", to)
		}
	}
}

func TestPathsNestBelowTheParents(t *testing.T) {
	for path, want := range map[string]string{"root": "root:a", "root:org:team": "root:org:team:a", "": "root:a"} {
		if got := childPath(world{workspace: fresh(), parent: parent(path)}); got != want {
			t.Errorf("below %q: %q, want %q", path, got, want)
		}
	}
}

func TestALogicalClusterNamesItsOwnerAndCannotGoWithItsContent(t *testing.T) {
	ws := fresh(withCluster, func(ws *tenancyv1alpha1.Workspace) {
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
	})
	lc := controllers.NewLogicalCluster(ws, "")
	want := &corev1alpha1.LogicalClusterOwner{APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Name: "a", Cluster: "root", UID: "ws-uid"}
	if d := cmp.Diff(want, lc.Spec.Owner); d != "" {
		t.Error(d)
	}
	if lc.Name != "cluster" || lc.Annotations["kcp.io/path"] != "root:a" || lc.Annotations["internal.tenancy.kcp.io/type"] != "root:universal" {
		t.Errorf("unexpected metadata: %+v", lc.ObjectMeta)
	}
	if !slices.Contains(lc.Finalizers, clusters.ContentFinalizer) {
		t.Errorf("no finalizer %s", clusters.ContentFinalizer)
	}
}

func TestStatusFollowsTheLogicalCluster(t *testing.T) {
	waiting := ours("Initializing")
	waiting.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:i"}
	blocked := ours("Deleting")
	blocked.DeletionTimestamp = &deletedAt
	conditions.MarkFalse(blocked, tenancyv1alpha1.WorkspaceContentDeleted, "SomeResourcesRemain", v1alpha1.ConditionSeverityInfo, "2 secrets")

	type condition struct {
		Type   v1alpha1.ConditionType
		Status corev1.ConditionStatus
		Reason string
	}
	for name, tc := range map[string]struct {
		world      world
		phase      corev1alpha1.LogicalClusterPhaseType
		conditions []condition
	}{
		"just created":      {world{workspace: fresh(withCluster), logicalCluster: ours("")}, "Initializing", []condition{{"WorkspaceInitialized", "False", "Initializing"}, {"WorkspaceScheduled", "True", ""}}},
		"initializers left": {world{workspace: fresh(withCluster), logicalCluster: waiting}, "Initializing", []condition{{"WorkspaceInitialized", "False", "InitializerExists"}, {"WorkspaceScheduled", "True", ""}}},
		"ready":             {world{workspace: fresh(withCluster), logicalCluster: ours("Ready")}, "Ready", []condition{{"WorkspaceInitialized", "True", ""}, {"WorkspaceScheduled", "True", ""}}},
		"unavailable":       {world{workspace: fresh(withCluster), logicalCluster: ours("Unavailable")}, "Unavailable", []condition{{"WorkspaceScheduled", "True", ""}}},
		"disappeared":       {world{workspace: fresh(withCluster, in("Ready")), confirmed: true}, "Ready", []condition{{"WorkspaceInitialized", "False", "WorkspaceDisappeared"}}},
		"another's cluster": {world{workspace: fresh(withCluster), logicalCluster: strangers("Ready")}, "", []condition{{"WorkspaceScheduled", "False", "Unschedulable"}}},
		"mounted":           {world{workspace: fresh(mounted)}, "", []condition{{"WorkspaceScheduled", "False", "Unschedulable"}}},
		"going":             {world{workspace: fresh(withCluster, deleted), logicalCluster: blocked}, "Deleting", []condition{{"WorkspaceContentDeleted", "False", "SomeResourcesRemain"}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.world.workspace.DeepCopy()
			got := reported(tc.world)
			if got.Status.Phase != tc.phase {
				t.Errorf("phase %q, want %q", got.Status.Phase, tc.phase)
			}
			var have []condition
			for _, c := range got.Status.Conditions {
				have = append(have, condition{c.Type, c.Status, c.Reason})
			}
			if d := cmp.Diff(tc.conditions, have); d != "" {
				t.Error(d)
			}
			if !apiequality.Semantic.DeepEqual(before, tc.world.workspace) {
				t.Error("the cached object was modified")
			}
			tc.world.workspace = got
			if again := reported(tc.world); !apiequality.Semantic.DeepEqual(got, again) {
				t.Errorf("reporting is not idempotent:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func TestClusterNamesAreValidAndDoNotRepeat(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		name := newClusterName()
		if !clusters.IsValidName(name) || len(name) != 16 || name[0] < 'a' || name[0] > 'z' {
			t.Fatalf("%q is no cluster name", name)
		}
		if seen[name.String()] {
			t.Fatalf("%q came twice", name)
		}
		seen[name.String()] = true
	}
}

func TestAWorkspaceNamesTheShardThatItAwaitsForLong(t *testing.T) {
	for condition, w := range map[v1alpha1.ConditionType]world{
		tenancyv1alpha1.WorkspaceInitialized:    overdue(elsewhere(fresh(withCluster), nil)),
		tenancyv1alpha1.WorkspaceContentDeleted: overdue(elsewhere(fresh(withCluster, deleted), ours("Ready"))),
	} {
		got := conditions.Get(reported(w), condition)
		if got == nil || got.Status != corev1.ConditionFalse || got.Reason != shardNotBegun || !strings.Contains(got.Message, "shard eu1 is heard") {
			t.Errorf("%s: %+v", condition, got)
		}
	}
	if ws := reported(overdue(elsewhere(fresh(withCluster), nil))); controllers.HasBegun(ws) {
		t.Error("its shard would take the cluster for one that has disappeared")
	}
}

// A Workspace and its LogicalCluster come and go together, and one of the two events is first.
func TestAClusterThatIsMissingIsLookedForAfterAWhile(t *testing.T) {
	missing := world{workspace: fresh(withCluster, in("Ready")), parent: parent("root")}
	if !missing.misses() || decide(missing) != nothing {
		t.Errorf("it is looked for at once: %s", decide(missing))
	}
	if next := decide(overdue(missing)); next != confirm {
		t.Errorf("it is not looked for: %s", next)
	}
	confirmed := missing
	confirmed.confirmed = true
	if next := decide(confirmed); next != report {
		t.Errorf("that it has gone is not told: %s", next)
	}
	for name, w := range map[string]world{
		"it is there":           {workspace: fresh(withCluster, in("Ready")), logicalCluster: ours("Ready")},
		"it has not been told":  {workspace: fresh(withCluster)},
		"it is being deleted":   {workspace: fresh(withCluster, in("Ready"), deleted)},
		"another shard has it":  elsewhere(fresh(withCluster, in("Ready")), nil),
		"it has no cluster yet": {workspace: fresh()},
	} {
		if w.misses() {
			t.Error(name)
		}
	}
}
