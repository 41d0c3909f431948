package catalog

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/until"
)

const provider logicalcluster.Name = "p7"

var exports = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")

// describe has the provider describe widgets.
func (s *shard) describe(t *testing.T, prefix string, change ...func(*apisv1alpha1.APIResourceSchema)) {
	t.Helper()
	d := widget()
	out := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + ".widgets.example.com"},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: d.Spec.Group, Names: d.Spec.Names, Scope: d.Spec.Scope, Versions: []apisv1alpha1.APIResourceVersion{{Name: "v1", Served: true, Storage: true}},
		},
	}
	out.Spec.Versions[0].Schema.Raw = []byte(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`)
	for _, c := range change {
		c(out)
	}
	if _, err := s.deps.Clients.Schemas.Create(clusters.With(t.Context(), provider), out, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// offer has the provider export widgets as a schema says, or change the export.
func (s *shard) offer(t *testing.T, prefix string) {
	t.Helper()
	ctx, client := clusters.With(t.Context(), provider), s.objects(t).Resource(exports)
	spec := map[string]any{"resources": []any{map[string]any{"group": "example.com", "name": "widgets", "schema": prefix + ".widgets.example.com"}}}
	out, err := client.Get(ctx, "widgets", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		out = &unstructured.Unstructured{Object: map[string]any{"apiVersion": exports.GroupVersion().String(), "kind": "APIExport", "spec": spec}}
		out.SetName("widgets")
		_, err = client.Create(ctx, out, metav1.CreateOptions{})
	} else if err == nil {
		out.Object["spec"] = spec
		_, err = client.Update(ctx, out, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bindIn makes a binding, as admission lets it in.
func (s *shard) bindIn(t *testing.T, cluster logicalcluster.Name) context.Context {
	t.Helper()
	ctx := clusters.With(t.Context(), cluster)
	b := &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{clusters.ExportClusterAnnotation: provider.String()}},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider.String(), Name: "widgets"}}},
	}
	if _, err := s.deps.Clients.Bindings.Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// binding returns the binding of a cluster. Nil: there is none.
func (s *shard) binding(ctx context.Context, t *testing.T) *apisv1alpha2.APIBinding {
	t.Helper()
	b, err := s.deps.Clients.Bindings.Get(ctx, "w", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *shard) untilBound(ctx context.Context, t *testing.T) {
	t.Helper()
	until.So(t, "it is bound", func() bool {
		b := s.binding(ctx, t)
		return b != nil && b.Status.Phase == apisv1alpha2.APIBindingPhaseBound && conditions.IsTrue(b, apisv1alpha2.BindingUpToDate)
	})
}

// untilSays waits until a condition of the binding is false for a reason, with words in its message.
func (s *shard) untilSays(ctx context.Context, t *testing.T, of conditionsv1alpha1.ConditionType, reason, words string) {
	t.Helper()
	until.So(t, string(of)+" is false: "+reason+" "+words, func() bool {
		b := s.binding(ctx, t)
		return b != nil && conditions.IsFalse(b, of) && conditions.GetReason(b, of) == reason && strings.Contains(conditions.GetMessage(b, of), words)
	})
}

func (s *shard) make(ctx context.Context, t *testing.T, name string, finalizers ...string) error {
	t.Helper()
	_, err := s.objects(t).Resource(widgets).Namespace("default").Create(ctx, widgetNamed(name, finalizers...), metav1.CreateOptions{})
	return err
}

func (s *shard) must(ctx context.Context, t *testing.T, name string, finalizers ...string) {
	t.Helper()
	if err := s.make(ctx, t, name, finalizers...); err != nil {
		t.Fatal(err)
	}
}

// whenHeard makes a widget once the server's caches do not show any more who had the name before, and is being deleted.
func (s *shard) whenHeard(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	until.So(t, name+" is made", func() bool {
		err := s.make(ctx, t, name)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func (s *shard) copies(t *testing.T) int {
	t.Helper()
	return len(s.keys(t, clusters.BoundSchemas.String()))
}

func TestWhatIsBoundGoesOnWithoutTheExportAndGoesWithTheBinding(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	s.describe(t, "v1")
	s.offer(t, "v1")
	x, y := s.bindIn(t, "x7"), s.bindIn(t, "y7")
	for _, ctx := range []context.Context{x, y} {
		s.untilBound(ctx, t)
		s.must(ctx, t, "a")
	}
	s.must(x, t, "held", "example.com/held")
	b := s.binding(x, t)
	if got := b.Status; got.APIExportClusterName != provider.String() || len(got.BoundResources) != 1 || got.BoundResources[0].Schema.Name != "v1.widgets.example.com" ||
		len(got.BoundResources[0].Schema.IdentityHash) != 64 || got.BoundResources[0].StorageVersions[0] != "v1" || !conditions.IsTrue(b, "Ready") {
		text, _ := json.Marshal(got)
		t.Errorf("its status is %s", text)
	}
	if n := s.copies(t); n != 1 {
		t.Errorf("%d copies of the schema, want one for all", n)
	}

	ctx := clusters.With(t.Context(), provider)
	if err := s.objects(t).Resource(exports).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.deps.Clients.Schemas.Delete(ctx, "v1.widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilSays(x, t, apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason, "no APIExport")
	s.must(x, t, "b")
	if b := s.binding(x, t); b.Status.Phase != apisv1alpha2.APIBindingPhaseBound || !conditions.IsTrue(b, "Ready") {
		t.Errorf("without the export it is %s", b.Status.Phase)
	}

	if err := s.deps.Clients.Bindings.Delete(x, "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilSays(x, t, apisv1alpha2.BindingResourceDeleteSuccess, "SomeResourcesRemain", "example.com/held in 1")
	if err := s.make(x, t, "new"); !apierrors.IsForbidden(err) {
		t.Errorf("an object is made while its binding is being deleted: %v", err)
	}
	client := s.objects(t).Resource(widgets).Namespace("default")
	held, err := client.Get(x, "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.SetFinalizers(nil)
	if _, err := client.Update(x, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the binding goes", func() bool { return s.binding(x, t) == nil })
	if left := s.keys(t, "x7"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	until.So(t, "without a binding there are no widgets", func() bool {
		err := s.make(x, t, "new")
		// the latter while the server's cache still shows it
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			t.Fatalf("without a binding: %v", err)
		}
		return apierrors.IsNotFound(err)
	})
	s.must(y, t, "c")
	if n := s.copies(t); n != 1 {
		t.Errorf("%d copies of the schema, while one binding uses it", n)
	}
	if err := s.deps.Clients.Bindings.Delete(y, "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the copy goes with the last", func() bool { return s.copies(t) == 0 && len(s.keys(t, "y7")) == 0 })
}

func TestANameIsADefinitionsOrABindings(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	s.describe(t, "v1")
	s.offer(t, "v1")
	s.define(t, "x7", widgetNamed("own"))
	ctx := s.bindIn(t, "x7")
	s.untilSays(ctx, t, apisv1alpha2.BindingUpToDate, apisv1alpha2.NamingConflictsReason, `"widgets" is in use by CustomResourceDefinition widgets.example.com`)
	if b := s.binding(ctx, t); b.Status.Phase != apisv1alpha2.APIBindingPhaseBinding || len(b.Status.BoundResources) != 0 || !conditions.IsFalse(b, "Ready") {
		t.Errorf("it is %s", b.Status.Phase)
	}
	if err := s.deps.Clients.Definitions.Delete(ctx, "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilBound(ctx, t)
	if _, err := s.objects(t).Resource(widgets).Namespace("default").Get(ctx, "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object of the definition is one of the binding now: %v", err)
	}
	s.whenHeard(ctx, t, "bound")

	if _, err := s.deps.Clients.Definitions.Create(ctx, widget(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the definition does not get the names", func() bool {
		c := apihelpers.FindCRDCondition(s.definition(ctx, t), apiextensionsv1.NamesAccepted)
		return c != nil && c.Status == apiextensionsv1.ConditionFalse && strings.Contains(c.Message, "APIBinding w")
	})
	if err := s.deps.Clients.Bindings.Delete(ctx, "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the definition gets the names", func() bool {
		return apihelpers.IsCRDConditionTrue(s.definition(ctx, t), apiextensionsv1.Established)
	})
	s.whenHeard(ctx, t, "own")
}

func TestABindingFollowsItsExportIfItsObjectsCan(t *testing.T) {
	s := startShard(t)
	s.lead(t)
	s.offer(t, "v1")
	ctx := s.bindIn(t, "x7")
	s.untilSays(ctx, t, apisv1alpha2.APIExportValid, apisv1alpha2.InternalErrorReason, "v1.widgets.example.com, which is not there")
	s.describe(t, "v1")
	s.untilBound(ctx, t)
	s.must(ctx, t, "a")

	s.describe(t, "other", func(d *apisv1alpha1.APIResourceSchema) { d.Spec.Names.Kind, d.Spec.Names.ListKind = "Gadget", "" })
	s.offer(t, "other")
	s.untilSays(ctx, t, apisv1alpha2.BindingUpToDate, apisv1alpha2.APIResourceSchemaInvalidReason, "its kind is Gadget, and not Widget")
	s.must(ctx, t, "b")

	s.describe(t, "v2", func(d *apisv1alpha1.APIResourceSchema) {
		d.Spec.Versions = append(d.Spec.Versions, apisv1alpha1.APIResourceVersion{Name: "v2", Served: true, Schema: d.Spec.Versions[0].Schema})
		d.Spec.Conversion = &apisv1alpha1.CustomResourceConversion{Strategy: "None"}
	})
	s.offer(t, "v2")
	s.untilBound(ctx, t)
	v2 := schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}
	until.So(t, "the new version is served", func() bool {
		_, err := s.objects(t).Resource(v2).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
		return err == nil
	})
	until.So(t, "only the copy that is in use is left", func() bool { return s.copies(t) == 1 })
}

// What a leader has left when it was killed: a copy that no binding names yet, or not any more.
func TestTheNextLeaderDeletesCopiesThatNobodyUses(t *testing.T) {
	s := startShard(t)
	s.describe(t, "v1")
	s.offer(t, "v1")
	used := s.bindIn(t, "x7")
	end := s.lead(t)
	s.untilBound(used, t)
	end()
	orphan := &apisv1alpha1.APIResourceSchema{}
	copied, err := s.deps.Clients.Schemas.List(clusters.With(t.Context(), clusters.BoundSchemas), metav1.ListOptions{})
	if err != nil || len(copied.Items) != 1 {
		t.Fatalf("%d copies: %v", len(copied.Items), err)
	}
	copied.Items[0].DeepCopyInto(orphan)
	orphan.ObjectMeta = metav1.ObjectMeta{Name: clusters.BoundSchemaKeyOf("0", "widgets", "example.com").Name}
	if _, err := s.deps.Clients.Schemas.Create(clusters.With(t.Context(), clusters.BoundSchemas), orphan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.lead(t)
	until.So(t, "the copy that nobody uses is gone", func() bool { return s.copies(t) == 1 })
	s.must(used, t, "a")

	// A copy that somebody has deleted by hand comes again.
	if err := s.deps.Clients.Schemas.Delete(clusters.With(t.Context(), clusters.BoundSchemas), copied.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.So(t, "the copy is there again", func() bool { return s.copies(t) == 1 && s.make(used, t, "b") == nil })
}
