package logicalcluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/content"
)

var deletedAt = metav1.Unix(1000, 0)

func inCluster(name string, edits ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster", ResourceVersion: "7", Annotations: map[string]string{"kcp.io/cluster": name},
	}}
	for _, edit := range edits {
		edit(lc)
	}
	return lc
}

func in(phase corev1alpha1.LogicalClusterPhaseType) func(*corev1alpha1.LogicalCluster) {
	return func(lc *corev1alpha1.LogicalCluster) { lc.Status.Phase = phase }
}

func deleted(lc *corev1alpha1.LogicalCluster) { lc.DeletionTimestamp = &deletedAt }

func specInitializer(lc *corev1alpha1.LogicalCluster) {
	lc.Spec.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:i"}
	lc.Spec.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:t"}
}

func statusInitializer(lc *corev1alpha1.LogicalCluster) {
	lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:i"}
}

func TestPhasesOnlyGoForward(t *testing.T) {
	for name, tc := range map[string]struct {
		lc       *corev1alpha1.LogicalCluster
		provided bool
		want     corev1alpha1.LogicalClusterPhaseType // empty: no write
	}{
		"new":                             {inCluster("x7"), false, ""},
		"new, namespaces there":           {inCluster("x7"), true, "Ready"},
		"defaulted":                       {inCluster("x7", in("Scheduling")), false, ""},
		"defaulted, namespaces there":     {inCluster("x7", in("Scheduling")), true, "Ready"},
		"new, with initializers":          {inCluster("x7", specInitializer), false, "Initializing"},
		"namespaces missing":              {inCluster("x7", in("Initializing")), false, ""},
		"namespaces there":                {inCluster("x7", in("Initializing")), true, "Ready"},
		"initializers left":               {inCluster("x7", in("Initializing"), statusInitializer), true, ""},
		"ready":                           {inCluster("x7", in("Ready")), true, ""},
		"unavailable":                     {inCluster("x7", in("Unavailable")), false, "Initializing"},
		"unavailable, namespaces there":   {inCluster("x7", in("Unavailable")), true, "Ready"},
		"unavailable, initializers left":  {inCluster("x7", in("Unavailable"), statusInitializer), true, "Initializing"},
		"deleting, but not deleted":       {inCluster("x7", in("Deleting")), true, "Ready"},
		"deleted when ready":              {inCluster("x7", in("Ready"), deleted), false, "Deleting"},
		"deleted before it was ready":     {inCluster("x7", deleted), true, "Deleting"},
		"deleting":                        {inCluster("x7", in("Deleting"), deleted), false, ""},
		"ready with a late initializer":   {inCluster("x7", in("Ready"), statusInitializer), true, ""},
		"initializers of spec come first": {inCluster("x7", in("Scheduling"), specInitializer), true, "Initializing"},
	} {
		t.Run(name, func(t *testing.T) {
			out := advanced(tc.lc, "https://shard", tc.provided)
			if out == nil {
				if tc.want != "" {
					t.Fatalf("stays in %q, want %q", tc.lc.Status.Phase, tc.want)
				}
				return
			}
			if out.Status.Phase != tc.want {
				t.Errorf("phase %q, want %q", out.Status.Phase, tc.want)
			}
			if out.ResourceVersion != "7" {
				t.Error("the write does not carry the resourceVersion it was decided on")
			}
		})
	}
}

func TestInitializersAndTerminatorsAreCopiedWhenTheirPhaseBegins(t *testing.T) {
	out := advanced(inCluster("x7", specInitializer), "https://shard", false)
	if d := cmp.Diff(out.Spec.Initializers, out.Status.Initializers); d != "" || out.Status.URL != "https://shard/clusters/x7" {
		t.Errorf("status %+v: %s", out.Status, d)
	}
	out = advanced(inCluster("x7", specInitializer, in("Ready"), deleted), "https://shard", false)
	if d := cmp.Diff(out.Spec.Terminators, out.Status.Terminators); d != "" {
		t.Error(d)
	}
}

func TestAURLThatStandsIsNotRewritten(t *testing.T) {
	out := advanced(inCluster("x7", func(lc *corev1alpha1.LogicalCluster) { lc.Status.URL = "https://front/clusters/x7" }), "https://replica-2", true)
	if out.Status.URL != "https://front/clusters/x7" {
		t.Errorf("URL became %s", out.Status.URL)
	}
}

func TestTheShardsOwnClustersAreNeverEmptied(t *testing.T) {
	for name, want := range map[string]bool{"root": true, "system:admin": true, "x7": false, "rooted": false} {
		if got := guarded(inCluster(name)) == nil; got != want {
			t.Errorf("%s without the content finalizer: %v, want %v", name, got, want)
		}
	}
	lc := inCluster("x7", func(lc *corev1alpha1.LogicalCluster) { lc.Finalizers = []string{"a/b"} })
	out := guarded(lc)
	if d := cmp.Diff([]string{"a/b", clusters.ContentFinalizer}, out.Finalizers); d != "" {
		t.Error(d)
	}
	if guarded(out) != nil {
		t.Error("a guarded cluster is guarded again")
	}
	if d := cmp.Diff([]string{"a/b"}, released(out).Finalizers); d != "" {
		t.Error(d)
	}
}

func TestWhatADeletionWaitsForIsToldOnce(t *testing.T) {
	reason, message := explain(content.Remaining{
		Objects:    map[string]int{"secrets": 2, "configmaps": 1},
		Finalizers: map[string]int{"a/b": 3},
	})
	const want = "Some content remains: configmaps has 1 resource instances, secrets has 2 resource instances. Finalizers remain: a/b in 3 resource instances"
	if message != want {
		t.Errorf("got %q, want %q", message, want)
	}
	out := blocked(inCluster("x7"), reason, message)
	if out == nil {
		t.Fatal("not told")
	}
	if blocked(out, reason, message) != nil {
		t.Error("told twice")
	}
	if blocked(out, reason, "less") == nil {
		t.Error("the change was not told")
	}
}

func TestOnlyWorkspacesAreOwners(t *testing.T) {
	owner := func(apiVersion, resource string) *corev1alpha1.LogicalCluster {
		return inCluster("x7", func(lc *corev1alpha1.LogicalCluster) {
			lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{APIVersion: apiVersion, Resource: resource, Name: "a", Cluster: "root"}
		})
	}
	if key, ok := ownerOf(owner("tenancy.kcp.io/v1alpha1", "workspaces")); !ok || key != (clusters.Key{Cluster: "root", Name: "a"}) {
		t.Errorf("got %v, %v", key, ok)
	}
	for _, lc := range []*corev1alpha1.LogicalCluster{inCluster("x7"), owner("v1", "configmaps"), owner("example.org/v1", "workspaces")} {
		if _, ok := ownerOf(lc); ok {
			t.Errorf("%+v is taken for a Workspace", lc.Spec.Owner)
		}
	}
}

func TestANamespaceIsFinalizedOnlyOfItsContent(t *testing.T) {
	ns := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes", "a/b"}}}
	out := content.Finalized(ns)
	if d := cmp.Diff([]corev1.FinalizerName{"a/b"}, out.Spec.Finalizers); d != "" {
		t.Error(d)
	}
	if content.Finalized(out) != nil {
		t.Error("finalized twice")
	}
}

// What holds a cluster is said while it holds it, and no longer.
func TestWhoseFinalizersHoldAClusterIsTold(t *testing.T) {
	with := func(finalizers ...string) func(*corev1alpha1.LogicalCluster) {
		return func(lc *corev1alpha1.LogicalCluster) { lc.Finalizers = finalizers }
	}
	told := heldByOthers(inCluster("x7", in("Ready"), deleted, with(clusters.ContentFinalizer, "a.b/c", "d.e/f")))
	if told == nil || told.Status.Phase != corev1alpha1.LogicalClusterPhaseDeleting {
		t.Fatalf("%+v", told)
	}
	condition := conditions.Get(told, tenancyv1alpha1.WorkspaceContentDeleted)
	if condition == nil || condition.Reason != "FinalizersRemain" || !strings.HasSuffix(condition.Message, ": a.b/c, d.e/f") {
		t.Errorf("%+v", condition)
	}
	if heldByOthers(told) != nil {
		t.Error("it is told again")
	}
	told.Finalizers = []string{"d.e/f"}
	if again := heldByOthers(told); again == nil || !strings.HasSuffix(conditions.Get(again, tenancyv1alpha1.WorkspaceContentDeleted).Message, ": d.e/f") {
		t.Error("that one is gone is not told")
	}
	for _, lc := range []*corev1alpha1.LogicalCluster{
		inCluster("x7", in("Ready"), deleted, with(clusters.ContentFinalizer)), inCluster("root", in("Ready"), deleted, with("a.b/c")),
	} {
		if out := heldByOthers(lc); out != nil {
			t.Errorf("nobody else holds it: %+v", out)
		}
	}
}
