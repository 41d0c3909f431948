package bootstrap

import (
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
)

func TestBootstrapNeverOverwritesWhatStands(t *testing.T) {
	for name, tc := range map[string]struct {
		phase     corev1alpha1.LogicalClusterPhaseType
		url       string
		wantPhase corev1alpha1.LogicalClusterPhaseType // empty: no write
		wantURL   string
	}{
		"new":              {"", "", "Ready", "https://shard/clusters/root"},
		"defaulted":        {"Scheduling", "", "Ready", "https://shard/clusters/root"},
		"half-way":         {"Initializing", "https://other/clusters/root", "Ready", "https://other/clusters/root"},
		"ready":            {"Ready", "https://other/clusters/root", "", ""},
		"taken out of use": {"Unavailable", "https://other/clusters/root", "", ""},
		"URL lost":         {"Unavailable", "", "Unavailable", "https://shard/clusters/root"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot()
			root.ResourceVersion = "7"
			root.Labels = map[string]string{"kept": "yes"}
			root.Status.Phase, root.Status.URL = tc.phase, tc.url
			out := becomeUsable(root, "https://shard")
			if out == nil {
				if tc.wantPhase != "" {
					t.Fatalf("nothing is written, want phase %s", tc.wantPhase)
				}
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
