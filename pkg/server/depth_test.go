package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// A user who has a workspace is its administrator, and may make others in it. That must not be a way around quotas.
func TestTenantsMakeWorkspacesNoDeeperAndNoMoreThanTheyMay(t *testing.T) {
	s := startSociety(t, func(s *Server) { s.cfg.Limits.WorkspaceDepth, s.cfg.Limits.WorkspacesPerCluster = 2, 1 })
	team := s.founds("ann", "team")
	create := func(cluster, name string) error {
		client, err := dynamic.NewForConfig(s.at.configOf(t, "ann", logicalcluster.Name(cluster)))
		if err != nil {
			t.Fatal(err)
		}
		ws := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}}}
		_, err = client.Resource(workspacesGVR).Create(t.Context(), ws, metav1.CreateOptions{})
		return err
	}
	eventually(t, "ann makes a workspace in ann's own", func(context.Context) error { return create(team, "a") })
	eventually(t, "one more is refused", func(context.Context) error {
		if err := create(team, "b"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may have 1") {
			return fmt.Errorf("it is answered: %v", err)
		}
		return nil
	})
	eventually(t, "a deeper one is refused", func(context.Context) error {
		if err := create(team+":a", "a"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--max-workspace-depth=2") {
			return fmt.Errorf("it is answered: %v", err)
		}
		return nil
	})
	s.create("other") // what root's own quota allows
	s.ready("other")
}
