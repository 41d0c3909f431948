package apis

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestTheReaderSeesWhatWasWrittenInItsClusterOnly(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	if _, err := s.kube(t, "aa").CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for resource, object := range map[string]map[string]any{
		"workspaces":      {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": "x"}},
		"logicalclusters": {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"}},
	} {
		for _, r := range Resources() {
			if r.GVR.Resource != resource {
				continue
			}
			if _, err := s.dynamic(t, "aa").Resource(r.GVR).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	here, elsewhere := clusters.With(t.Context(), "aa"), clusters.With(t.Context(), "bb")
	if ns, err := s.reader.Namespace(here, "x"); err != nil || ns.Name != "x" {
		t.Errorf("namespace: %v, %v", ns, err)
	}
	if ws, err := s.reader.Workspace(here, "x"); err != nil || ws.Name != "x" {
		t.Errorf("workspace: %v, %v", ws, err)
	}
	if lc, err := s.reader.LogicalCluster(here); err != nil || lc.Name != "cluster" {
		t.Errorf("logical cluster: %v, %v", lc, err)
	}
	if _, err := s.reader.Namespace(elsewhere, "x"); !apierrors.IsNotFound(err) {
		t.Errorf("namespace of another cluster: %v", err)
	}
	if _, err := s.reader.Workspace(elsewhere, "x"); !apierrors.IsNotFound(err) {
		t.Errorf("workspace of another cluster: %v", err)
	}
	if _, err := s.reader.LogicalCluster(elsewhere); !apierrors.IsNotFound(err) {
		t.Errorf("logical cluster of another cluster: %v", err)
	}
	var all []schema.GroupVersionResource
	for _, r := range Resources() {
		all = append(all, r.GVR)
	}
	held, err := s.storage.Holding(here, all)
	names := map[string]bool{}
	for _, r := range held {
		names[r.Resource] = true
	}
	if want := (map[string]bool{"namespaces": true, "workspaces": true, "logicalclusters": true}); err != nil || !maps.Equal(names, want) {
		t.Errorf("cluster aa holds %v, %v", names, err)
	}
	for _, other := range []logicalcluster.Name{"bb", "aaa"} {
		if held, err := s.storage.Holding(clusters.With(t.Context(), other), all); err != nil || len(held) > 0 {
			t.Errorf("cluster %s holds %v, %v", other, held, err)
		}
	}
	for _, none := range []context.Context{t.Context(), clusters.With(t.Context(), clusters.Wildcard)} {
		if held, err := s.storage.Holding(none, all); err == nil {
			t.Errorf("it is not asked for one cluster, and says %v", held)
		}
	}
	if _, err := s.storage.Holding(here, []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods")}); err == nil {
		t.Error("it tells of what is not stored")
	}
	many := slices.Repeat(all, 300/len(all))
	if again, err := s.storage.Holding(here, many); err != nil || len(again) != len(held)*(300/len(all)) {
		t.Errorf("of %d resources at once it names %d: %v", len(many), len(again), err)
	}
}
