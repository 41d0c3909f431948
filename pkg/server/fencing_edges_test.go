package server

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
)

// What cannot be decoded can be deleted by a request that says so, past admission and past upstream's dry-runs.
func TestADeletionOfWhatCannotBeReadIsHeldToItsToken(t *testing.T) {
	s := startFencedShard(t)
	ctx := clusters.With(t.Context(), clusters.SystemAdmin)
	const key = "/registry/core/configmaps/system:admin/default/x"
	if _, err := s.etcd.Put(ctx, key, "garbage"); err != nil {
		t.Fatal(err)
	}
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	unsafe := metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: ptr.To(true)}
	dry := *unsafe.DeepCopy()
	dry.DryRun = []string{metav1.DryRunAll}
	for name, client := range s.over {
		for how, opts := range map[string]metav1.DeleteOptions{"made": unsafe, "dry-run": dry} {
			if err := client.Resource(configMaps).Namespace("default").Delete(ctx, "x", opts); !fence.IsFenced(err) {
				t.Errorf("with the token of %s, %s: got %v, want a refusal", name, how, err)
			}
		}
	}
	if resp, err := s.etcd.Get(ctx, key); err != nil || resp.Count != 1 {
		t.Errorf("it was deleted: %v", err)
	}
	if err := s.current.Resource(configMaps).Namespace("default").Delete(ctx, "x", unsafe); err != nil {
		t.Errorf("with the current token: %v", err)
	}
}

// A Lease that cannot be read lets no token through, and whoever may not get it learns nothing of it.
func TestALeaseThatCannotBeReadLetsNothingThrough(t *testing.T) {
	s := startFencedShard(t)
	ctx := clusters.With(t.Context(), clusters.SystemAdmin)
	const key = "/registry/coordination.k8s.io/leases/system:admin/default/some-job"
	if resp, err := s.etcd.Get(ctx, key); err != nil || resp.Count != 1 {
		t.Fatalf("the Lease is not at %s: %v", key, err)
	}
	if _, err := s.etcd.Put(ctx, key, "garbage"); err != nil {
		t.Fatal(err)
	}
	_, err := s.current.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default").
		Create(ctx, &unstructured.Unstructured{Object: fromYAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || strings.Contains(err.Error(), "some-job") || strings.Contains(err.Error(), "registry") {
		t.Errorf("got %v, want an internal error that says nothing of the Lease", err)
	}
}
