package bootstrap

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestBootstrapMakesRootReadyAndOverwritesNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		phase     corev1alpha1.LogicalClusterPhaseType
		url       string
		wantPhase corev1alpha1.LogicalClusterPhaseType // empty: no write
		wantURL   string
	}{
		"new":                      {"", "", "Ready", "https://shard/clusters/root"},
		"defaulted":                {"Scheduling", "", "Ready", "https://shard/clusters/root"},
		"half-way":                 {"Initializing", "https://other/clusters/root", "Ready", "https://other/clusters/root"},
		"ready":                    {"Ready", "https://other/clusters/root", "", ""},
		"taken out of use":         {"Unavailable", "https://other/clusters/root", "Ready", "https://other/clusters/root"},
		"said to be deleted":       {"Deleting", "https://other/clusters/root", "Ready", "https://other/clusters/root"},
		"URL lost":                 {"Ready", "", "Ready", "https://shard/clusters/root"},
		"taken out of use, no URL": {"Unavailable", "", "Ready", "https://shard/clusters/root"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot()
			root.ResourceVersion = "7"
			root.Labels = map[string]string{"kept": "yes"}
			root.Status.Phase, root.Status.URL = tc.phase, tc.url
			out := becomeUsable(root, "https://shard")
			if (out == nil) != (tc.wantPhase == "") {
				t.Fatalf("wrote %+v, want phase %q", out, tc.wantPhase)
			}
			if out == nil {
				return
			}
			if out.Status.Phase != tc.wantPhase || out.Status.URL != tc.wantURL {
				t.Errorf("status %+v, want phase %s, URL %s", out.Status, tc.wantPhase, tc.wantURL)
			}
			if out.ResourceVersion != "7" || out.Labels["kept"] != "yes" {
				t.Errorf("metadata not kept: %+v", out.ObjectMeta)
			}
		})
	}
}

func TestRootsPathIsRoot(t *testing.T) {
	if path := newRoot().Annotations["kcp.io/path"]; path != "root" {
		t.Errorf("path %q", path)
	}
}

// server has a root, or none, and takes down the calls.
type server struct {
	root  *corev1alpha1.LogicalCluster
	calls []string
}

func (s *server) Create(_ context.Context, obj *corev1alpha1.LogicalCluster, _ metav1.CreateOptions) (*corev1alpha1.LogicalCluster, error) {
	s.calls = append(s.calls, "create")
	return obj, nil
}

func (s *server) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1alpha1.LogicalCluster, error) {
	s.calls = append(s.calls, "get")
	if s.root == nil {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), name)
	}
	return s.root, nil
}

func (s *server) UpdateStatus(_ context.Context, obj *corev1alpha1.LogicalCluster, _ metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error) {
	s.calls = append(s.calls, "update")
	return obj, nil
}

// All others wait for root: a cache that is late must not hold them up.
func TestRootIsEstablishedWithoutWaitingForTheCache(t *testing.T) {
	in := func(phase corev1alpha1.LogicalClusterPhaseType) *corev1alpha1.LogicalCluster {
		root := newRoot()
		root.Annotations["kcp.io/cluster"] = "root"
		root.Status.Phase, root.Status.URL = phase, "https://shard/clusters/root"
		return root
	}
	for name, tc := range map[string]struct {
		cached, live *corev1alpha1.LogicalCluster
		calls        []string
	}{
		"nothing to do":            {in("Ready"), in("Ready"), nil},
		"Ready since":              {in("Initializing"), in("Ready"), []string{"get"}},
		"made since":               {nil, in("Ready"), []string{"get"}},
		"half-way":                 {in("Scheduling"), in("Initializing"), []string{"get", "update"}},
		"gone since, was half-way": {in("Scheduling"), nil, []string{"get", "create", "update"}},
		"new":                      {nil, nil, []string{"get", "create", "update"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := controllertest.NewSource[*corev1alpha1.LogicalCluster]()
			if tc.cached != nil {
				source.Set(tc.cached)
			}
			s := &server{root: tc.live}
			c := &controller{logicalClusters: controllertest.Informer(t, source, nil), client: s, baseURL: "https://shard"}
			if err := c.establishRoot(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.calls, s.calls); d != "" {
				t.Error(d)
			}
		})
	}
}
