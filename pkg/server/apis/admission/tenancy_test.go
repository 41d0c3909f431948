package admission_test

import (
	"strings"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/server/apis/admission"
)

var (
	leader  = &user.DefaultInfo{Name: "the-leader", Groups: []string{user.SystemPrivilegedGroup}}
	replica = &user.DefaultInfo{Name: "a-replica", Groups: []string{user.SystemPrivilegedGroup}}
	master  = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	tenant  = &user.DefaultInfo{Name: "tenant", Groups: []string{user.AllAuthenticated}}
)

// tenancy is a write of old to obj by everybody in turn; old nil: a creation.
type tenancy struct {
	name     string
	old, obj runtime.Object
	// refused is what the refusal names; empty: nobody is refused. masters says that they are not.
	refused string
	masters bool
}

func workspace(edits ...func(*tenancyv1alpha1.Workspace)) runtime.Object {
	ws := &tenancyv1alpha1.Workspace{}
	ws.Name, ws.Status.Phase = "w", corev1alpha1.LogicalClusterPhaseScheduling
	for _, edit := range edits {
		edit(ws)
	}
	return ws
}

// bind makes a Workspace as it is when it is Ready.
func bind(ws *tenancyv1alpha1.Workspace) {
	ws.Spec.Cluster, ws.Spec.URL = "x7", "https://shard/clusters/root:w"
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	ws.Finalizers = []string{"core.kcp.io/logicalcluster"}
}

func logicalCluster(edits ...func(*corev1alpha1.LogicalCluster)) runtime.Object {
	lc := &corev1alpha1.LogicalCluster{}
	lc.Name, lc.Finalizers = "cluster", []string{"regent.dev/content"}
	lc.Annotations = map[string]string{"kcp.io/path": "root:w", "internal.tenancy.kcp.io/type": "root:universal"}
	lc.Status.Phase, lc.Status.URL = corev1alpha1.LogicalClusterPhaseReady, "https://shard/clusters/x7"
	for _, edit := range edits {
		edit(lc)
	}
	return lc
}

var writesOfWorkspaces = []tenancy{
	{name: "made", obj: workspace()},
	{name: "made with a cluster", obj: workspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = "default" }), refused: "spec.cluster"},
	{name: "made with a URL", obj: workspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.URL = "https://elsewhere" }), refused: "spec.URL"},
	{name: "restored with everything", obj: workspace(bind), refused: "spec.cluster"},
	{name: "made with the finalizer and one more", obj: workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Finalizers = []string{"core.kcp.io/logicalcluster", "example.com/mine"}
	})},
	{name: "made for somebody", obj: workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Annotations = map[string]string{"experimental.tenancy.kcp.io/owner": "{}"}
	}), refused: "metadata.annotations[experimental.tenancy.kcp.io/owner]", masters: true},
	{name: "sent to the shard of its cluster", obj: workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Annotations = map[string]string{"regent.dev/returned-to": "eu1"}
	}), refused: "metadata.annotations[regent.dev/returned-to]", masters: true},
	{name: "made to adopt a cluster", obj: workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Annotations = map[string]string{"regent.dev/adopt": "eu1/x7"}
	}), refused: "metadata.annotations[regent.dev/adopt]", masters: true},
	{name: "bound", old: workspace(), obj: workspace(bind), refused: "spec.cluster"},
	{name: "moved", old: workspace(bind), obj: workspace(bind, func(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = "x8" }), refused: "spec.cluster"},
	{name: "led elsewhere", old: workspace(bind), obj: workspace(bind, func(w *tenancyv1alpha1.Workspace) { w.Spec.URL = "https://elsewhere" }), refused: "spec.URL"},
	{name: "said to be new", old: workspace(bind), obj: workspace(bind, func(w *tenancyv1alpha1.Workspace) { w.Status.Phase = "Scheduling" }), refused: "status.phase"},
	{name: "let go", old: workspace(bind), obj: workspace(bind, func(w *tenancyv1alpha1.Workspace) { w.Finalizers = nil }), refused: "core.kcp.io/logicalcluster"},
	{name: "written as it stands", old: workspace(bind), obj: workspace(bind)},
	{name: "labelled, held and told of", old: workspace(bind), obj: workspace(bind, func(w *tenancyv1alpha1.Workspace) {
		w.Labels = map[string]string{"region": "here"}
		w.Finalizers = append(w.Finalizers, "example.com/mine")
		w.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:mine"}
	})},
	{name: "no longer held by its user", old: workspace(bind, func(w *tenancyv1alpha1.Workspace) { w.Finalizers = append(w.Finalizers, "example.com/mine") }), obj: workspace(bind)},
}

var writesOfLogicalClusters = []tenancy{
	{name: "made", obj: logicalCluster(), refused: "create a Workspace"},
	{name: "made without an owner, finalizer and path", obj: &corev1alpha1.LogicalCluster{}, refused: "create a Workspace"},
	{name: "said to be unavailable", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Status.Phase = "Unavailable" }), refused: "status.phase"},
	{name: "said to be ready", old: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Status.Phase = "Initializing" }), obj: logicalCluster(), refused: "status.phase"},
	{name: "led elsewhere", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Status.URL = "https://elsewhere" }), refused: "status.URL"},
	{name: "moved", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Annotations["kcp.io/path"] = "root" }), refused: "metadata.annotations[kcp.io/path]"},
	{name: "without a path", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Annotations = nil }), refused: "metadata.annotations[kcp.io/path]"},
	{name: "of another type", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Annotations["internal.tenancy.kcp.io/type"] = "root:other"
	}), refused: "metadata.annotations[internal.tenancy.kcp.io/type]"},
	{name: "owned by somebody", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Annotations["experimental.tenancy.kcp.io/owner"] = "{}"
	}), refused: "metadata.annotations[experimental.tenancy.kcp.io/owner]"},
	{name: "given to another Workspace", old: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Spec.Owner = &corev1alpha1.LogicalClusterOwner{UID: "lost"}
	}), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Spec.Owner = &corev1alpha1.LogicalClusterOwner{UID: "another"}
	}), refused: "spec.owner.uid"},
	{name: "allowed more objects", masters: true, old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Annotations["quota.regent.dev/max-objects"] = "1M"
	}), refused: "metadata.annotations[quota.regent.dev/max-objects]"},
	{name: "allowed any number of bytes", masters: true, old: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Annotations["quota.regent.dev/max-bytes"] = "1Mi"
	}), obj: logicalCluster(), refused: "metadata.annotations[quota.regent.dev/max-bytes]"},
	{name: "let go", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Finalizers = nil }), refused: "regent.dev/content"},
	{name: "let go for another finalizer", old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Finalizers = []string{"example.com/mine"} }), refused: "regent.dev/content"},
	{name: "written as it stands", old: logicalCluster(), obj: logicalCluster()},
	{name: "initialized, labelled and held", old: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:mine"}
	}), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) {
		l.Labels = map[string]string{"a": "b"}
		l.Finalizers = append(l.Finalizers, "example.com/mine")
	})},
}

func TestWhatOthersRelyOnInTenancyIsTheLeadersAlone(t *testing.T) {
	plugin := &admission.TenancyProtection{Leader: leader.Name}
	for resource, writes := range map[schema.GroupVersionResource][]tenancy{
		tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"):   writesOfWorkspaces,
		corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"): writesOfLogicalClusters,
	} {
		for _, w := range writes {
			for _, who := range []user.Info{leader, replica, master, tenant, nil} {
				operation := upstream.Update
				if w.old == nil {
					operation = upstream.Create
				}
				err := plugin.Validate(t.Context(), upstream.NewAttributesRecord(w.obj, w.old, schema.GroupVersionKind{}, "", "w", resource, "", operation, nil, false, who), nil)
				isMaster := who == replica || who == master
				refused := w.refused != "" && who != leader && !(w.masters && isMaster)
				if refused != apierrors.IsForbidden(err) || !refused && err != nil || refused && !strings.Contains(err.Error(), w.refused) {
					t.Errorf("%s %s by %v: %v, want refused: %t, because of %q", resource.Resource, w.name, who, err, refused, w.refused)
				}
			}
		}
	}
}

func TestTenancyProtectionLeavesOtherResourcesAlone(t *testing.T) {
	plugin := &admission.TenancyProtection{Leader: leader.Name}
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"), {Group: "example.com", Version: "v1", Resource: "logicalclusters"},
	} {
		a := upstream.NewAttributesRecord(&corev1.ConfigMap{}, nil, schema.GroupVersionKind{}, "", "w", resource, "", upstream.Create, nil, false, tenant)
		if err := plugin.Validate(t.Context(), a, nil); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
	}
}
