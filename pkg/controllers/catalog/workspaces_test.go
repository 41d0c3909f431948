package catalog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/until"
)

func (s *shard) createWorkspace(t *testing.T, in logicalcluster.Name, name string) {
	t.Helper()
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.deps.Clients.Workspaces.Create(clusters.With(t.Context(), in), ws, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func (s *shard) deleteWorkspace(t *testing.T, in logicalcluster.Name, name string) {
	t.Helper()
	if err := s.deps.Clients.Workspaces.Delete(clusters.With(t.Context(), in), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// ready waits until a workspace is and returns it.
func (s *shard) ready(t *testing.T, in logicalcluster.Name, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	var ws *tenancyv1alpha1.Workspace
	until.So(t, name+" Ready", func() bool {
		var err error
		ws, err = s.deps.Clients.Workspaces.Get(clusters.With(t.Context(), in), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	return ws
}

// fill puts something into a cluster, one object with a finalizer that the caller has to remove.
func (s *shard) fill(t *testing.T, cluster logicalcluster.Name) (release func()) {
	t.Helper()
	ctx := clusters.With(t.Context(), cluster)
	kube := s.deps.Clients.Kube.CoreV1()
	if _, err := kube.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}}
		if _, err := kube.Secrets("mine").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.org/held"}}}
	if _, err := kube.ConfigMaps("mine").Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		held, err := kube.ConfigMaps("mine").Get(ctx, "held", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		held.Finalizers = nil
		if _, err := kube.ConfigMaps("mine").Update(ctx, held, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWorkspacesNestBecomeReadyAndLeaveNothingBehind(t *testing.T) {
	s := startShard(t)
	s.createWorkspace(t, clusters.Root, "a") // pending before anybody leads
	s.lead(t)
	a := s.ready(t, clusters.Root, "a")
	s.createWorkspace(t, logicalcluster.Name(a.Spec.Cluster), "b")
	b := s.ready(t, logicalcluster.Name(a.Spec.Cluster), "b")
	if a.Spec.URL != "https://shard/clusters/root:a" || b.Spec.URL != "https://shard/clusters/root:a:b" {
		t.Errorf("URLs %s, %s", a.Spec.URL, b.Spec.URL)
	}
	for _, cluster := range []string{"root", "system:admin", a.Spec.Cluster, b.Spec.Cluster} {
		for _, ns := range []string{"default", "kube-system"} {
			if _, err := s.deps.Clients.Kube.CoreV1().Namespaces().Get(clusters.With(t.Context(), logicalcluster.Name(cluster)), ns, metav1.GetOptions{}); err != nil {
				t.Errorf("in %s: %v", cluster, err)
			}
		}
	}
	release := s.fill(t, logicalcluster.Name(b.Spec.Cluster))
	s.deleteWorkspace(t, clusters.Root, "a")
	until.So(t, "the deletion says what it waits for", func() bool {
		ws, err := s.deps.Clients.Workspaces.Get(clusters.With(t.Context(), logicalcluster.Name(a.Spec.Cluster)), "b", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ws.Status.Conditions {
			if c.Type == tenancyv1alpha1.WorkspaceContentDeleted && strings.Contains(c.Message, "example.org/held") {
				return true
			}
		}
		return false
	})
	release()
	until.So(t, "all gone", func() bool {
		_, err := s.deps.Clients.Workspaces.Get(clusters.With(t.Context(), clusters.Root), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if keys := s.keys(t, a.Spec.Cluster, b.Spec.Cluster); len(keys) > 0 {
		t.Errorf("keys left in etcd:\n%s", strings.Join(keys, "\n"))
	}
}

func TestWorkIsFinishedByTheNextTermI8(t *testing.T) {
	s := startShard(t)
	const clients, each = 8, 5
	var creating sync.WaitGroup
	for client := range clients {
		creating.Go(func() {
			for i := range each {
				s.createWorkspace(t, clusters.Root, fmt.Sprintf("w-%d-%d", client, i))
			}
		})
	}
	// Terms that are too short to finish anything in particular.
	for range 5 {
		end := s.lead(t)
		time.Sleep(150 * time.Millisecond)
		end()
	}
	creating.Wait()
	end := s.lead(t)
	var names []string
	for client := range clients {
		for i := range each {
			names = append(names, s.ready(t, clusters.Root, fmt.Sprintf("w-%d-%d", client, i)).Spec.Cluster)
		}
	}
	if n := len(s.deps.Informers.LogicalClusters.List(clusters.Wildcard)); n != clients*each+1 {
		t.Errorf("%d logical clusters for %d workspaces and root", n, clients*each)
	}
	end()
	if err := s.deps.Clients.Workspaces.DeleteCollection(clusters.With(t.Context(), clusters.Root), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		end := s.lead(t)
		time.Sleep(150 * time.Millisecond)
		end()
	}
	s.lead(t)
	until.So(t, "all gone", func() bool { return s.workspaces(t) == 0 })
	if keys := s.keys(t, names...); len(keys) > 0 {
		t.Errorf("keys left in etcd:\n%s", strings.Join(keys, "\n"))
	}
}

func (s *shard) workspaces(t *testing.T) int {
	t.Helper()
	list, err := s.deps.Clients.Workspaces.List(clusters.With(t.Context(), clusters.Root), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestALogicalClusterDeletedDirectlyTakesItsWorkspaceAlong(t *testing.T) {
	s := startShard(t)
	s.createWorkspace(t, clusters.Root, "a")
	s.lead(t)
	a := s.ready(t, clusters.Root, "a")
	within := clusters.With(t.Context(), logicalcluster.Name(a.Spec.Cluster))
	if err := s.deps.Clients.LogicalClusters.Delete(within, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the workspace gone", func() bool { return s.workspaces(t) == 0 })
	if keys := s.keys(t, a.Spec.Cluster); len(keys) > 0 {
		t.Errorf("keys left in etcd:\n%s", strings.Join(keys, "\n"))
	}
}

// The server lets nobody forge an owner. If somebody did, before it refused that, the victim is not to pay for it.
func TestALogicalClusterTakesNoWorkspaceAlongThatNamesAnotherCluster(t *testing.T) {
	s := startShard(t)
	s.createWorkspace(t, clusters.Root, "victim")
	s.lead(t)
	victim := s.ready(t, clusters.Root, "victim")
	forged := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName},
		Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{
			APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Cluster: "root", Name: victim.Name, UID: victim.UID,
		}},
	}
	within := clusters.With(t.Context(), "forger")
	if _, err := s.deps.Clients.LogicalClusters.Create(within, forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the forged cluster Ready", func() bool {
		lc, err := s.deps.Clients.LogicalClusters.Get(within, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		return err == nil && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	if err := s.deps.Clients.LogicalClusters.Delete(within, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "nothing is left of the forged cluster", func() bool { return len(s.keys(t, "forger")) == 0 })
	if ws := s.ready(t, clusters.Root, "victim"); ws.UID != victim.UID || ws.DeletionTimestamp != nil {
		t.Errorf("the forger deleted the workspace of its victim: %+v", ws.ObjectMeta)
	}
}

func TestRootComesBackWithItsContent(t *testing.T) {
	s := startShard(t)
	s.createWorkspace(t, clusters.Root, "a")
	s.lead(t)
	s.ready(t, clusters.Root, "a")
	root := clusters.With(t.Context(), clusters.Root)
	old, err := s.deps.Clients.LogicalClusters.Get(root, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.deps.Clients.LogicalClusters.Delete(root, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "another root Ready", func() bool {
		lc, err := s.deps.Clients.LogicalClusters.Get(root, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		return err == nil && lc.UID != old.UID && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	s.ready(t, clusters.Root, "a")
}

func TestANamespaceGoesWithItsContentAndSaysWhatItWaitsFor(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	release := s.fill(t, "x7")
	ctx := clusters.With(t.Context(), "x7")
	namespaces := s.deps.Clients.Kube.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the condition NamespaceFinalizersRemaining", func() bool {
		ns, err := namespaces.Get(ctx, "mine", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	})
	release()
	until.So(t, "the namespace gone", func() bool {
		_, err := namespaces.Get(ctx, "mine", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if keys := s.keys(t, "x7"); len(keys) > 0 {
		t.Errorf("keys left in etcd:\n%s", strings.Join(keys, "\n"))
	}
}

// Nobody empties root, so nobody else lets its namespaces go.
func TestANamespaceOfRootGoesWhileAFinalizerHoldsTheDeletedRoot(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	root := clusters.With(t.Context(), clusters.Root)
	var lc *corev1alpha1.LogicalCluster
	until.So(t, "root has a finalizer of somebody's", func() (done bool) {
		var err error
		if lc, err = s.deps.Clients.LogicalClusters.Get(root, corev1alpha1.LogicalClusterName, metav1.GetOptions{}); err != nil {
			return false
		}
		lc.Finalizers = []string{"example.org/held"}
		lc, err = s.deps.Clients.LogicalClusters.Update(root, lc, metav1.UpdateOptions{})
		return err == nil
	})
	s.fill(t, clusters.Root)() // with nothing held in it
	if err := s.deps.Clients.LogicalClusters.Delete(root, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the controllers know that root is deleted", func() bool {
		cached, ok := s.deps.Informers.LogicalClusters.Get(clusters.Key{Cluster: clusters.Root, Name: corev1alpha1.LogicalClusterName})
		return ok && cached.DeletionTimestamp != nil
	})
	namespaces := s.deps.Clients.Kube.CoreV1().Namespaces()
	if err := namespaces.Delete(root, "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the namespace gone", func() bool {
		_, err := namespaces.Get(root, "mine", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if held, err := s.deps.Clients.LogicalClusters.Get(root, corev1alpha1.LogicalClusterName, metav1.GetOptions{}); err != nil || held.UID != lc.UID {
		t.Errorf("root was not held: %+v, %v", held, err)
	}
}

func TestOwnerReferencesWorkOnRealStorage(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	for policy, stays := range map[metav1.DeletionPropagation]bool{
		metav1.DeletePropagationBackground: false, metav1.DeletePropagationForeground: false, metav1.DeletePropagationOrphan: true,
	} {
		cluster := logicalcluster.Name("x-" + strings.ToLower(string(policy)))
		ctx := clusters.With(t.Context(), cluster)
		configMaps := s.deps.Clients.Kube.CoreV1().ConfigMaps("n")
		owner, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		block := true
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: &block},
		}}}
		if _, err := configMaps.Create(ctx, child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := configMaps.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		until.So(t, "the owner gone, policy "+string(policy), func() bool { return isGone(ctx, s, "owner") })
		if stays {
			left, err := configMaps.Get(ctx, "child", metav1.GetOptions{})
			if err != nil || len(left.OwnerReferences) > 0 {
				t.Errorf("policy %s: child %+v, %v", policy, left, err)
			}
			continue
		}
		until.So(t, "the child gone, policy "+string(policy), func() bool { return isGone(ctx, s, "child") })
	}
}

func isGone(ctx context.Context, s *shard, name string) bool {
	_, err := s.deps.Clients.Kube.CoreV1().ConfigMaps("n").Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
