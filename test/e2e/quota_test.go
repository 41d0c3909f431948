package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// A cluster is filled through both replicas at once, by many writers. It gets no more than it may have, and what
// writers had under way. Deletions make room, an administrator allows more, and the cluster can be deleted while it is
// full.
//
// Replicas judge by what they have seen: a writer goes on once both have seen what it wrote.
func TestAClusterStoresNoMoreThanItMay(t *testing.T) {
	t.Parallel() // most of it is waiting
	const quota, writers = 40, 8
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Args = []string{fmt.Sprintf("--max-objects-per-cluster=%d", quota), "--max-bytes-per-cluster=1000000"}
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	leader.CreateWorkspace("full")
	cluster := leader.WaitWorkspace("full")
	var created, refused atomic.Int64
	var writing sync.WaitGroup
	var through []corev1client.ConfigMapInterface
	for _, r := range []*harness.Replica{a, b} {
		through = append(through, r.Kube(cluster).CoreV1().ConfigMaps("default"))
	}
	for w := range writers {
		writing.Go(func() {
			for n := range quota {
				name := fmt.Sprintf("w%d-%d", w, n)
				_, err := through[w%2].Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				switch {
				case err == nil:
					created.Add(1)
					awaitSeen(t, name, through...)
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "delete what is not needed"):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if created.Load() > quota+writers || created.Load() < quota/2 || refused.Load() == 0 {
		t.Errorf("%d objects were created and %d refused, with a quota of %d that counts what every cluster has, and %d writers", created.Load(), refused.Load(), quota, writers)
	}
	t.Logf("%d created, %d refused", created.Load(), refused.Load())
	inCluster := a.Kube(cluster).CoreV1()
	add := func(ctx context.Context, bytes int) error {
		_, err := inCluster.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "more-"}, Data: map[string]string{"a": strings.Repeat("x", bytes)},
		}, metav1.CreateOptions{})
		return err
	}
	if err := add(t.Context(), 1); !apierrors.IsForbidden(err) {
		t.Errorf("a creation in a full cluster: %v", err)
	}
	if err := inCluster.ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("a full cluster cannot be emptied: %v", err)
	}
	harness.Eventually(t, "what was deleted made room", func() bool { return add(t.Context(), 1) == nil })
	for range 2 * writers {
		_ = add(t.Context(), 30_000)
	}
	if err := allow(t, a, cluster, `{"quota.regent.dev/max-objects":"0","quota.regent.dev/max-bytes":"100k"}`); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "bytes are refused", func() bool {
		err := add(t.Context(), 1)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "it may store 100000")
	})
	if err := allow(t, a, cluster, `{"quota.regent.dev/max-bytes":"much"}`); !apierrors.IsInvalid(err) {
		t.Errorf("a quota that is none: %v", err)
	}
	if err := allow(t, a, cluster, `{"quota.regent.dev/max-bytes":"10Mi"}`); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "more is allowed", func() bool { return add(t.Context(), 1) == nil })
	if err := allow(t, a, cluster, `{"quota.regent.dev/max-bytes":"1"}`); err != nil {
		t.Fatal(err)
	}
	if err := a.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.EventuallyIn(t, time.Minute, "the full cluster is deleted", func() bool {
		_, err := a.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "full", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// awaitSeen waits until replicas have seen a ConfigMap: until their caches have it.
func awaitSeen(t *testing.T, name string, through ...corev1client.ConfigMapInterface) {
	t.Helper()
	for _, configMaps := range through {
		for deadline := time.Now().Add(harness.Patience); ; time.Sleep(5 * time.Millisecond) {
			if _, err := configMaps.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: "0"}); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("a replica does not see %s", name)
				return
			}
		}
	}
}

// allow sets annotations of a cluster's LogicalCluster, as the administrator.
func allow(t *testing.T, r *harness.Replica, cluster, annotations string) error {
	t.Helper()
	client, err := dynamic.NewForConfig(r.AdminConfig(cluster))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Resource(schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}).
		Patch(t.Context(), "cluster", types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
	return err
}
