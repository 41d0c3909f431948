package routing

import (
	"context"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/premise"
)

// stored is what storage holds; it counts reads. The informers of the directory under test have not begun, so
// everything is a miss.
type stored struct {
	workspaces map[clusters.Key]logicalcluster.Name
	clusters   map[logicalcluster.Name]*corev1alpha1.LogicalCluster
	reads      int
}

func (s *stored) Workspace(_ context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	s.reads++
	target, ok := s.workspaces[clusters.Key{Cluster: cluster, Name: name}]
	if !ok {
		return nil, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), name)
	}
	return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{UID: uidOf(cluster, name)}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: target.String()}}, nil
}

func (s *stored) LogicalCluster(_ context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	s.reads++
	lc, ok := s.clusters[cluster]
	if !ok {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "cluster")
	}
	return lc, nil
}

func logicalCluster(phase corev1alpha1.LogicalClusterPhaseType) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Status: corev1alpha1.LogicalClusterStatus{Phase: phase},
	}
}

func uidOf(cluster logicalcluster.Name, name string) types.UID {
	return types.UID(cluster.String() + "/" + name)
}

// owned makes lc the cluster of a workspace.
func owned(lc *corev1alpha1.LogicalCluster, cluster logicalcluster.Name, name string) *corev1alpha1.LogicalCluster {
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: cluster.String(), Name: name, UID: uidOf(cluster, name)}
	return lc
}

func newDirectory(s *stored) *Directory {
	return &Directory{
		Workspaces:      clusters.NewInformer[*tenancyv1alpha1.Workspace](nil, nil),
		LogicalClusters: clusters.NewInformer(nil, clusters.AssignedIndexers()),
		Live:            s,
	}
}

func TestAPathLeadsThroughWorkspaces(t *testing.T) {
	s := &stored{
		workspaces: map[clusters.Key]logicalcluster.Name{
			{Cluster: clusters.Root, Name: "a"}: "x1", {Cluster: "x1", Name: "b"}: "x2", {Cluster: clusters.Root, Name: "unscheduled"}: "",
			// Anybody who may write workspaces may write these.
			{Cluster: clusters.Root, Name: "thief"}: "x2", {Cluster: clusters.Root, Name: "star"}: "*", {Cluster: clusters.Root, Name: "admin"}: "system:admin",
			{Cluster: clusters.Root, Name: "circle"}: "root",
		},
		clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{
			clusters.Root: logicalCluster(corev1alpha1.LogicalClusterPhaseReady),
			"x1":          owned(logicalCluster(corev1alpha1.LogicalClusterPhaseInitializing), clusters.Root, "a"),
			"x2":          owned(logicalCluster(corev1alpha1.LogicalClusterPhaseReady), "x1", "b"),
		},
	}
	for path, want := range map[string]logicalcluster.Name{
		"root": "root", "root:a": "x1", "root:a:b": "x2", "x1": "x1", "x1:b": "x2", "system:admin": "system:admin",
		"root:b": "", "root:a:a": "", "nothing": "", "nothing:a": "", "root:unscheduled": "", "system": "", "x": "", "x:y": "",
		"root:thief": "", "root:star": "", "root:admin": "", "root:circle": "",
	} {
		got, err := newDirectory(s).Resolve(t.Context(), logicalcluster.NewPath(path), anyone)
		if got != want || (want == "") != apierrors.IsNotFound(err) {
			t.Errorf("%s leads to %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestAnUnknownClusterCostsOneRead(t *testing.T) {
	s := &stored{}
	if _, err := newDirectory(s).Resolve(t.Context(), logicalcluster.NewPath("nothing:a:b:c"), anyone); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if s.reads != 1 {
		t.Errorf("%d reads, want 1", s.reads)
	}
}

func TestRootIsUnavailableUntilItIsThere(t *testing.T) {
	_, err := newDirectory(&stored{}).Resolve(t.Context(), clusters.Root.Path(), anyone)
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !ok || seconds < 1 {
		t.Errorf("got %v, want unavailable with a delay", err)
	}
}

// Whatever phase somebody wrote, root is there for all who read, and for masters, who have to mend it.
func TestRootIsThereInAnyPhase(t *testing.T) {
	for _, phase := range []corev1alpha1.LogicalClusterPhaseType{"", "Scheduling", "Initializing", "Ready", "Unavailable", "Deleting", "Odd"} {
		d := newDirectory(&stored{clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{clusters.Root: logicalCluster(phase)}})
		if name, err := d.Resolve(t.Context(), clusters.Root.Path(), anyone); name != clusters.Root || err != nil {
			t.Errorf("phase %q: %q, %v", phase, name, err)
		}
		for _, operation := range []admission.Operation{admission.Create, admission.Update} {
			if err := (&Gate{Directory: d}).Validate(clusters.With(t.Context(), clusters.Root), write(master, operation, configMaps), nil); err != nil {
				t.Errorf("phase %q: a master's %s: %v", phase, operation, err)
			}
			err := (&Gate{Directory: d}).Validate(clusters.With(t.Context(), clusters.Root), write(other, operation, configMaps), nil)
			if _, delay := apierrors.SuggestsClientDelay(err); phase == "Ready" && err != nil || phase != "Ready" && (!apierrors.IsServiceUnavailable(err) || !delay) {
				t.Errorf("phase %q: somebody's %s: %v", phase, operation, err)
			}
		}
	}
}

// Root is never emptied: nothing that is created in it could be missed.
func TestADeletedRootAdmitsCreations(t *testing.T) {
	lc := logicalCluster(corev1alpha1.LogicalClusterPhaseReady)
	lc.DeletionTimestamp = new(metav1.Now())
	d := newDirectory(&stored{clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{clusters.Root: lc}})
	for _, who := range []user.Info{master, other} {
		if err := (&Gate{Directory: d}).Validate(clusters.With(t.Context(), clusters.Root), write(who, admission.Create, configMaps), nil); err != nil {
			t.Errorf("%s: %v", who.GetName(), err)
		}
	}
}

// A deletion waits for those who remove their finalizers: users, and controllers with accounts in the cluster.
func TestWhatIsThereMayBeChangedWhileItsClusterGoes(t *testing.T) {
	for phase, changes := range map[corev1alpha1.LogicalClusterPhaseType]bool{"Ready": true, "Deleting": true, "Unavailable": false, "Initializing": false, "Scheduling": false} {
		lc := logicalCluster(phase)
		if phase == "Initializing" {
			lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{"a"}
		}
		lc.DeletionTimestamp = new(metav1.Now())
		gate := &Gate{Directory: newDirectory(&stored{clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{"going": lc}})}
		for operation, admitted := range map[admission.Operation]bool{admission.Create: false, admission.Update: changes, admission.Delete: changes} {
			err := gate.Validate(clusters.With(t.Context(), "going"), write(other, operation, configMaps), nil)
			if (err == nil) != admitted || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("phase %s: %s: %v", phase, operation, err)
			}
		}
	}
}

var (
	master = &user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}
	other  = &user.DefaultInfo{Name: "o", Groups: []string{user.AllAuthenticated}}

	configMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
)

func write(who user.Info, what admission.Operation, resource schema.GroupVersionResource) admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "ns", "n", resource, "", what, nil, false, who)
}

func TestTheGateFollowsTheClustersState(t *testing.T) {
	deleting := logicalCluster(corev1alpha1.LogicalClusterPhaseReady)
	deleting.DeletionTimestamp = &metav1.Time{}
	deleting.DeletionTimestamp.Time = metav1.Now().Time
	s := &stored{clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{
		"ready":    logicalCluster(corev1alpha1.LogicalClusterPhaseReady),
		"initial":  logicalCluster(corev1alpha1.LogicalClusterPhaseInitializing),
		"deleting": deleting,
	}}
	gate := &Gate{Directory: newDirectory(s)}
	for _, c := range []struct {
		cluster  logicalcluster.Name
		who      user.Info
		what     admission.Operation
		resource schema.GroupVersionResource
		want     bool
	}{
		{"ready", other, admission.Create, configMaps, true},
		{"ready", other, admission.Delete, configMaps, true},
		{"initial", other, admission.Create, configMaps, false},
		{"initial", other, admission.Update, configMaps, false},
		{"initial", master, admission.Create, configMaps, true},
		{"initial", master, admission.Update, configMaps, true},
		{"deleting", other, admission.Create, configMaps, false},
		{"deleting", master, admission.Create, configMaps, false},
		{"deleting", master, admission.Update, configMaps, true},
		{"deleting", other, admission.Delete, configMaps, true},
		{"gone", master, admission.Create, configMaps, false},
		{"gone", master, admission.Create, logicalClusters, true},
		{"gone", other, admission.Create, logicalClusters, true}, // is refused elsewhere, whoever it is
		{"initial", other, admission.Update, logicalClusters, false},
		{clusters.SystemAdmin, master, admission.Create, configMaps, true},
	} {
		err := gate.Validate(clusters.With(t.Context(), c.cluster), write(c.who, c.what, c.resource), nil)
		if (err == nil) != c.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s %s %s in %s: %v, want allowed: %t", c.who.GetName(), c.what, c.resource.Resource, c.cluster, err, c.want)
		}
	}
}

// What the process has heard is enough to admit a creation, which storage then holds to it, and not to refuse one.
func TestTheGateAsksStorageOnlyIfWhatItHasHeardDoesNotDo(t *testing.T) {
	going := logicalCluster(corev1alpha1.LogicalClusterPhaseReady)
	going.DeletionTimestamp = new(metav1.Now())
	ready, initial := logicalCluster(corev1alpha1.LogicalClusterPhaseReady), logicalCluster(corev1alpha1.LogicalClusterPhaseInitializing)
	for name, c := range map[string]struct {
		heard, stored *corev1alpha1.LogicalCluster
		premise       bool
		reads         int
		admitted      bool
	}{
		"Ready":                        {ready, ready, true, 0, true},
		"Ready, and not held to it":    {ready, going, false, 1, false},
		"not heard of yet":             {nil, ready, true, 1, true},
		"heard of as not Ready":        {initial, ready, true, 1, true},
		"heard of as Ready, and going": {ready, going, true, 0, true}, // storage refuses it
		"heard of as going, and anew":  {going, ready, true, 1, true},
		"going":                        {going, going, true, 1, false},
	} {
		s := &stored{clusters: map[logicalcluster.Name]*corev1alpha1.LogicalCluster{"c": c.stored}}
		d := newDirectory(s)
		var items []*corev1alpha1.LogicalCluster
		if c.heard != nil {
			lc := c.heard.DeepCopy()
			lc.Name, lc.Annotations = corev1alpha1.LogicalClusterName, map[string]string{logicalcluster.AnnotationKey: "c"}
			items = append(items, lc)
		}
		d.LogicalClusters = controllertest.Informer(t, controllertest.NewSource(items...), clusters.AssignedIndexers())
		asked := clusters.With(t.Context(), "c")
		if c.premise {
			asked = premise.With(asked)
		}
		err := (&Gate{Directory: d}).Validate(asked, write(other, admission.Create, configMaps), nil)
		if (err == nil) != c.admitted || s.reads != c.reads {
			t.Errorf("%s: %v after %d reads, want admitted: %t, after %d", name, err, s.reads, c.admitted, c.reads)
		}
	}
}

func anyone() error { return nil }

func TestWhoMayNotReadIsToldBeforeStorageIsAsked(t *testing.T) {
	s := &stored{}
	refused := apierrors.NewUnauthorized("who are you")
	for _, path := range []string{"nothing", "nothing:a"} {
		_, err := newDirectory(s).Resolve(t.Context(), logicalcluster.NewPath(path), func() error { return refused })
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v, want the refusal", path, err)
		}
	}
	if s.reads != 0 {
		t.Errorf("%d reads", s.reads)
	}
}
