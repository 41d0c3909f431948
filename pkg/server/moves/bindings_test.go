package moves_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// copies are what a shard has bound, and the copies of schemas.
type copies struct {
	bindings []*apisv1alpha2.APIBinding
	schemas  map[string]*apisv1alpha1.APIResourceSchema
	fault    error
}

func (c *copies) Bindings(context.Context, logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error) {
	return c.bindings, nil
}

func (c *copies) Schema(_ context.Context, name string) (*apisv1alpha1.APIResourceSchema, error) {
	if s, ok := c.schemas[name]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

func (c *copies) Keep(_ context.Context, copied *apisv1alpha1.APIResourceSchema) error {
	if c.fault == nil {
		c.schemas[copied.Name] = copied
	}
	return c.fault
}

// comingTo is shard eu1, to which a logical cluster comes from root.
func comingTo(c *copies) *moves.Moves {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{
		logicalcluster.AnnotationKey: team.String(), clusters.ComingAnnotation: "2026-01-01T00:00:00Z", clusters.EpochAnnotation: "5",
		clusters.ComingFromAnnotation: clusters.Move{Shard: "root", ID: "m1"}.String(),
	}}}
	return &moves.Moves{Shard: "eu1", Bindings: c, Live: has{lc: lc}}
}

// has reads one LogicalCluster.
type has struct {
	routing.Live
	lc *corev1alpha1.LogicalCluster
}

func (h has) LogicalCluster(context.Context, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return h.lc, nil
}

// A binding that comes names the shard of its export as seen from here, and the copies of schemas as they are called
// here: nothing that another shard says stands for what this one or a third one has.
func TestABindingComesWithTheShardOfItsExport(t *testing.T) {
	m := comingTo(&copies{})
	for name, tc := range map[string]struct{ cluster, shard, want string }{
		"its export is of the shard that it comes from": {cluster: "maker", want: "root"},
		"its export is of this shard":                   {cluster: "maker", shard: "eu1"},
		"its export is of a third one":                  {cluster: "maker", shard: "us1", want: "us1"},
		"its export is its own":                         {cluster: team.String()},
		"nobody has found its export":                   {},
	} {
		b := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"a": "b"}}}
		if tc.cluster != "" {
			b.Annotations[clusters.ExportClusterAnnotation] = tc.cluster
		}
		if tc.shard != "" {
			b.Annotations[clusters.ExportShardAnnotation] = tc.shard
		}
		b.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Resource: "parcels", Schema: apisv1alpha2.BoundAPIResourceSchema{UID: "s1"}}}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		objects := []storage.Stored{{Key: bundle.BindingKeys + "b", Revision: 3, JSON: text}}
		if err := m.Localize(t.Context(), team, objects); err != nil {
			t.Fatal(err)
		}
		got := &apisv1alpha2.APIBinding{}
		if err := json.Unmarshal(objects[0].JSON, got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[clusters.ExportShardAnnotation] != tc.want || got.Annotations[clusters.ExportClusterAnnotation] != tc.cluster || got.Annotations["a"] != "b" {
			t.Errorf("%s: %v", name, got.Annotations)
		}
		if uid := got.Status.BoundResources[0].Schema.UID; uid != string(clusters.ForeignUID("root", "s1")) {
			t.Errorf("%s: its schema has uid %s", name, uid)
		}
	}
	if err := m.Localize(t.Context(), team, []storage.Stored{{Key: bundle.BindingKeys + "b", JSON: []byte("{")}}); !errors.Is(err, storage.ErrUnstorable) {
		t.Errorf("what is no binding: %v", err)
	}
}

func TestSchemasComeWithWhatHasBoundThem(t *testing.T) {
	parcels := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "us1.parcels.example.com", Annotations: map[string]string{
			logicalcluster.AnnotationKey: clusters.BoundSchemas.String(), apisv1alpha1.AnnotationSchemaClusterKey: "maker", apisv1alpha1.AnnotationSchemaNameKey: "v1.parcels.example.com",
			apiextensionsv1.KubeAPIApprovedAnnotation: "yes", clusters.LeavingAnnotation: "what the other shard has made up",
		}},
		Spec: apisv1alpha1.APIResourceSchemaSpec{Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "parcels"}},
	}
	c := &copies{schemas: map[string]*apisv1alpha1.APIResourceSchema{}}
	m := comingTo(c)
	for _, name := range []string{"", "u", "us1", "us1.parcels", "us1.letters.example.com", "u.parcels.example.com"} {
		if err := m.TakeSchema(t.Context(), team, name, parcels); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if err := m.TakeSchema(t.Context(), team, parcels.Name, parcels); err != nil {
		t.Fatal(err)
	}
	here := clusters.BoundSchemaKeyOf(string(clusters.ForeignUID("root", types.UID("s1"))), "parcels", "example.com").Name
	want := map[string]string{apisv1alpha1.AnnotationSchemaClusterKey: "maker", apisv1alpha1.AnnotationSchemaNameKey: "v1.parcels.example.com", apiextensionsv1.KubeAPIApprovedAnnotation: "yes"}
	if len(c.schemas) != 1 || c.schemas[here] == nil || !maps.Equal(c.schemas[here].Annotations, want) {
		t.Errorf("kept: %s", cmp.Diff(map[string]*apisv1alpha1.APIResourceSchema{here: nil}, c.schemas))
	}
	c.fault = apierrors.NewInvalid(schema.GroupKind{}, here, nil)
	if err := m.TakeSchema(t.Context(), team, parcels.Name, parcels); !errors.Is(err, moves.ErrCannotMove) || !strings.Contains(err.Error(), "cannot use") {
		t.Errorf("a schema of a later version: %v", err)
	}
}

// Whoever may move one logical cluster may not read what others have bound.
func TestALogicalClusterShowsTheSchemasThatItUses(t *testing.T) {
	used := clusters.BoundSchemaKeyOf("s1", "parcels", "example.com").Name
	lost := clusters.BoundSchemaKeyOf("s2", "stamps", "example.com").Name
	strange := clusters.BoundSchemaKeyOf("s3", "secrets", "example.com").Name
	c := &copies{schemas: map[string]*apisv1alpha1.APIResourceSchema{used: {}, strange: {}}}
	for _, of := range [][2]string{{"s1", "parcels"}, {"s2", "stamps"}, {"s1", "parcels"}} {
		b := &apisv1alpha2.APIBinding{}
		b.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: "example.com", Resource: of[1], Schema: apisv1alpha2.BoundAPIResourceSchema{UID: of[0]}}}
		c.bindings = append(c.bindings, b)
	}
	m := &moves.Moves{Shard: "root", Bindings: c}
	if got, err := m.BoundSchemas(t.Context(), team); err != nil || !slices.Equal(got, slices.Sorted(slices.Values([]string{used, lost}))) {
		t.Errorf("%v, %v", got, err)
	}
	for name, want := range map[string]bool{used: true, lost: false, strange: false} {
		if _, err := m.BoundSchema(t.Context(), team, name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
