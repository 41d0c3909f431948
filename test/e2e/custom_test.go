package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/test/e2e/harness"
)

var definitionDeaths = flag.Int("definition-deaths", 2, "how often the leader is killed between a definition and its acceptance; make long-scenarios: 10")

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitionOf returns the definition of a resource of group example.com, whose kind is given.
func definitionOf(kind, plural string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			}},
		},
	}}
}

func customObject(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{"n": int64(1)},
	}}
}

func isEstablished(ctx context.Context, r *harness.Replica, cluster, name string) bool {
	d, err := r.Dynamic(cluster).Resource(definitions).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// Whoever applies a definition can use it, though the leader dies right then: on each replica, at once, without
// sleeping.
func TestADefinitionIsEstablishedByTheNextLeader(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	a.CreateWorkspace("one")
	cluster := b.WaitWorkspace("one")
	var took []time.Duration
	for n := range *definitionDeaths {
		leader, others := harness.Leader(t, a, b)
		left := others[0]
		harness.Eventually(t, "the standby hears the leader", left.Follows)
		plural, kind := fmt.Sprintf("widgets%d", n), fmt.Sprintf("Widget%d", n)
		began := time.Now()
		if _, err := left.Dynamic(cluster).Resource(definitions).Create(t.Context(), definitionOf(kind, plural), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		leader.Kill()
		harness.Eventually(t, "the definition is established", func() bool { return isEstablished(t.Context(), left, cluster, plural+".example.com") })
		took = append(took, time.Since(began))
		resource := definitions.GroupVersion().WithResource(plural)
		resource.Group, resource.Version = "example.com", "v1"
		if _, err := left.Dynamic(cluster).Resource(resource).Namespace("default").Create(t.Context(), customObject(kind, "x"), metav1.CreateOptions{}); err != nil {
			t.Errorf("creation right after it was established: %v", err)
		}
		leader.Again()
		leader.WaitReady()
		if _, err := leader.Dynamic(cluster).Resource(resource).Namespace("default").Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
			t.Errorf("through the replica that was killed: %v", err)
		}
	}
	slices.Sort(took)
	t.Logf("from the definition to its acceptance by the next leader: median %v, longest %v, %d times", took[len(took)/2], took[len(took)-1], len(took))
}

// A cluster that is deleted takes its definitions and its custom objects with it.
func TestADeletedClusterLeavesNoCustomObjects(t *testing.T) {
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	a.CreateWorkspace("one")
	cluster := b.WaitWorkspace("one")
	if _, err := a.Dynamic(cluster).Resource(definitions).Create(t.Context(), definitionOf("Widget", "widgets"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	harness.Eventually(t, "a custom object can be made", func() bool {
		_, err := b.Dynamic(cluster).Resource(widgets).Namespace("default").Create(t.Context(), customObject("Widget", "x"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	if err := a.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the workspace is gone", func() bool {
		_, err := a.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "one", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	left, err := etcd.Client(t).Get(t.Context(), "/registry/custom/"+cluster, clientv3.WithPrefix())
	if err != nil || len(left.Kvs) > 0 {
		t.Errorf("left in etcd: %v, %v", left, err)
	}
}
