package server

import (
	"slices"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/pkg/clusters"
)

// Package apis shows of configmaps, in depth, that clusters are apart. This holds of all that is served, as the server
// tells it.
func TestEqualNamesOfAnyResourceNeverMeet(t *testing.T) {
	s := startFencedShard(t)
	for _, r := range s.discover(t) {
		if !isWhole(r) {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			here, there := s.newTarget(t, r), s.newTarget(t, r)
			elsewhere := s.newTarget(t, r)
			for _, o := range []target{here, there} {
				if err := create(o); err != nil {
					t.Fatal(err)
				}
				mustList(t, o, o)
			}
			mustList(t, elsewhere)
			was, err := there.get()
			if err != nil {
				t.Fatal(err)
			}
			if err := update(here); err != nil {
				t.Fatal(err)
			}
			if err := leaveNothing(here); err != nil {
				t.Fatal(err)
			}
			mustList(t, here)
			mustList(t, there, there)
			if is, err := there.get(); err != nil || is.GetUID() != was.GetUID() || is.GetResourceVersion() != was.GetResourceVersion() {
				t.Errorf("what happened in another cluster changed it: %v, %v", is, err)
			}
			if _, err := elsewhere.get(); !apierrors.IsNotFound(err) {
				t.Errorf("where there is none, get came to %v", err)
			}
		})
	}
}

// leaveNothing deletes the object, whatever holds it.
func leaveNothing(o target) error {
	if isNamespace(o.writable) {
		if err := finalize(o); err != nil {
			return err
		}
	}
	err := remove(o)
	if err == nil && (o.gvr.Resource == "customresourcedefinitions" || o.gvr.Resource == "apibindings") {
		err = release(o) // it waits for its objects
	}
	return err
}

// mustList checks that a list in in's cluster shows the objects in want, and nothing else.
func mustList(t *testing.T, in target, want ...target) {
	t.Helper()
	list, err := in.client.Resource(in.gvr).List(in.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(obj unstructured.Unstructured) bool { return clusters.IsBuiltIn(&obj) })
	if len(list.Items) != len(want) {
		t.Fatalf("a list shows %d objects, want %d", len(list.Items), len(want))
	}
	for n, o := range want {
		cluster, _ := clusters.From(o.ctx)
		if got := logicalcluster.From(&list.Items[n]); got != cluster {
			t.Errorf("a list in %s shows an object of %s", cluster, got)
		}
	}
}
