package catalog

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/test/until"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// widget is a definition as users write it.
func widget() *apiextensionsv1.CustomResourceDefinition {
	d := controllertest.Definition("", "example.com", "Widget", apiextensionsv1.NamespaceScoped)
	d.Annotations, d.Status = nil, apiextensionsv1.CustomResourceDefinitionStatus{}
	d.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
	return d
}

func (s *shard) objects(t *testing.T) dynamic.Interface {
	t.Helper()
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: s.url, QPS: -1}, &http.Client{Transport: clusters.Transport(connections)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func widgetNamed(name string, finalizers ...string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	out.SetName(name)
	out.SetFinalizers(finalizers)
	return out
}

// define has a cluster define widgets, waits until they can be made, and makes some.
func (s *shard) define(t *testing.T, cluster logicalcluster.Name, objects ...*unstructured.Unstructured) {
	t.Helper()
	ctx := clusters.With(t.Context(), cluster)
	if _, err := s.deps.Clients.Definitions.Create(ctx, widget(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := s.objects(t).Resource(widgets).Namespace("default")
	for _, obj := range objects {
		until.So(t, "a widget is made", func() bool {
			_, err := client.Create(ctx, obj, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
}

func (s *shard) definition(ctx context.Context, t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d, err := s.deps.Clients.Definitions.Get(ctx, "widgets.example.com", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func says(d *apiextensionsv1.CustomResourceDefinition, what string) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Terminating && strings.Contains(c.Message, what) {
			return true
		}
	}
	return false
}

func TestADefinitionGoesWithItsObjectsAndSaysWhatItWaitsFor(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	ctx, other := clusters.With(t.Context(), "x7"), clusters.With(t.Context(), "y7")
	s.define(t, "x7", widgetNamed("a"), widgetNamed("held", "example.com/held"))
	s.define(t, "y7", widgetNamed("a"))
	client := s.objects(t).Resource(widgets).Namespace("default")

	// A version that users cannot use any more.
	d := s.definition(ctx, t)
	d.Spec.Versions[0].Served = false
	d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2", Served: false, Schema: d.Spec.Versions[0].Schema})
	if _, err := s.deps.Clients.Definitions.Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.deps.Clients.Definitions.Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "it says what it waits for", func() bool {
		d := s.definition(ctx, t)
		if d == nil {
			t.Fatal("the definition has gone, and its object has not")
		}
		return says(d, "example.com/held in 1")
	})
	if _, err := client.Create(ctx, widgetNamed("new"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("an object is made while its definition is being deleted: %v", err)
	}
	held, err := client.Get(ctx, "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.SetFinalizers(nil)
	if _, err := client.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the definition goes", func() bool { return s.definition(ctx, t) == nil })
	if left := s.keys(t, "x7"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := client.Get(other, "a", metav1.GetOptions{}); err != nil {
		t.Errorf("that of another cluster: %v", err)
	}
}

func TestANamespaceGoesWithItsCustomObjects(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	ctx := clusters.With(t.Context(), "x7")
	namespaces := s.deps.Clients.Kube.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.define(t, "x7", widgetNamed("kept"))
	client := s.objects(t).Resource(widgets)
	if _, err := client.Namespace("mine").Create(ctx, widgetNamed("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(ctx, "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the namespace goes", func() bool {
		_, err := namespaces.Get(ctx, "mine", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "kept" {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestAWorkspaceGoesWithItsDefinitionsAndCustomObjects(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	s.createWorkspace(t, clusters.Root, "a")
	cluster := logicalcluster.Name(s.ready(t, clusters.Root, "a").Spec.Cluster)
	s.define(t, cluster, widgetNamed("a"), widgetNamed("b"))
	s.deleteWorkspace(t, clusters.Root, "a")
	until.So(t, "the workspace goes", func() bool {
		_, err := s.deps.Clients.Workspaces.Get(clusters.With(t.Context(), clusters.Root), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if left := s.keys(t, cluster.String()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOwnerReferencesToAndFromCustomObjectsWorkOnRealStorage(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	ctx := clusters.With(t.Context(), "x7")
	s.define(t, "x7", widgetNamed("owner"))
	client := s.objects(t).Resource(widgets).Namespace("default")
	owner, err := client.Get(ctx, "owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	configMaps := s.deps.Clients.Kube.CoreV1().ConfigMaps("default")
	child, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: owner.GetUID()},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	grandchild := widgetNamed("grandchild")
	grandchild.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "child", UID: child.UID}})
	if _, err := client.Create(ctx, grandchild, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "all go", func() bool {
		_, first := configMaps.Get(ctx, "child", metav1.GetOptions{})
		_, second := client.Get(ctx, "grandchild", metav1.GetOptions{})
		if err := errors.Join(ignoreNotFound(first), ignoreNotFound(second)); err != nil {
			t.Fatal(err)
		}
		return first != nil && second != nil
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
