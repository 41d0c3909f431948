package apis

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	for _, r := range Resources() {
		_, want := map[string]bool{"namespaces": true, "workspaces": true, "logicalclusters": true}[r.GVR.Resource]
		if holds, err := s.reader.Holds(here, r.GVR); err != nil || holds != want {
			t.Errorf("cluster aa holds %s: %v, %v", r.GVR.Resource, holds, err)
		}
		if holds, err := s.reader.Holds(elsewhere, r.GVR); err != nil || holds {
			t.Errorf("cluster bb holds %s: %v, %v", r.GVR.Resource, holds, err)
		}
	}
	if _, err := s.reader.Holds(here, corev1.SchemeGroupVersion.WithResource("pods")); err == nil {
		t.Error("it tells of what is not stored")
	}
}
