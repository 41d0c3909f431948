package custom

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/test/until"
)

var boundWidgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// copied is the copy of a schema of widgets. What differs makes another content.
func copied(uid, differs string) *apisv1alpha1.APIResourceSchema {
	d := widgets("")
	s := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{
			Name:        clusters.BoundSchemaKeyOf(uid, "widgets", "example.com").Name,
			Annotations: map[string]string{logicalcluster.AnnotationKey: clusters.BoundSchemas.String()},
		},
		Spec: apisv1alpha1.APIResourceSchemaSpec{Group: "example.com", Names: d.Spec.Names, Scope: d.Spec.Scope},
	}
	s.Spec.Versions = []apisv1alpha1.APIResourceVersion{{Name: "v1", Served: true, Storage: true}}
	s.Spec.Versions[0].Schema.Raw = []byte(`{"type":"object","description":"` + differs + `","x-kubernetes-preserve-unknown-fields":true}`)
	return s
}

func boundIn(cluster, uid string) binding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "w", UID: types.UID(cluster), Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}},
		Status: apisv1alpha2.APIBindingStatus{BoundResources: []apisv1alpha2.BoundAPIResource{{
			Group: "example.com", Resource: "widgets", Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "s", UID: uid},
		}}},
	}
}

// sharing are sources of definitions whose caches tests fill, and storage that has the same, and more.
type sharing struct {
	definitions *controllertest.Source[crd]
	bindings    *controllertest.Source[binding]
	schemas     *controllertest.Source[*apisv1alpha1.APIResourceSchema]
	stored      []binding
	reads       int
	Union
	informers controllers.Informers
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{definitions: controllertest.NewSource[crd](), bindings: controllertest.NewSource[binding](), schemas: controllertest.NewSource[*apisv1alpha1.APIResourceSchema]()}
	s.informers = controllers.Informers{
		Definitions:        controllertest.Informer(t, s.definitions, controllers.DefinitionIndexers()),
		APIBindings:        controllertest.Informer(t, s.bindings, controllers.BindingIndexers()),
		APIResourceSchemas: controllertest.Informer(t, s.schemas, controllers.OwnerIndexers[*apisv1alpha1.APIResourceSchema]()),
	}
	contents := &Contents{}
	own := NewOwn(s.informers.Definitions, contents, func(context.Context, logicalcluster.Name, string) (*apiextensionsv1.CustomResourceDefinition, error) {
		s.reads++
		return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), "")
	})
	bound := NewBindings(s.informers, contents, LiveBindings{
		List: func(_ context.Context, cluster logicalcluster.Name) (found []*apisv1alpha2.APIBinding, _ error) {
			s.reads++
			for _, b := range s.stored {
				if logicalcluster.From(b) == cluster {
					found = append(found, b)
				}
			}
			return found, nil
		},
		Schema: func(_ context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
			for _, uid := range []string{"1", "2"} {
				if c := copied(uid, uid); c.Name == name && cluster == clusters.BoundSchemas {
					c.ResourceVersion = "1"
					return c, nil
				}
			}
			return nil, apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), name)
		},
	})
	s.Union = NewUnion(own, bound)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	for _, run := range []func(context.Context){own.Run, bound.Run} {
		go func() {
			run(ctx)
			done <- struct{}{}
		}()
	}
	until.So(t, "the sources follow their caches", func() bool { return s.informers.Definitions.Handlers() == 1 && s.informers.APIBindings.Handlers() == 1 })
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
	})
	return s
}

func (s *sharing) find(t *testing.T, cluster logicalcluster.Name) *Definition {
	t.Helper()
	d, err := s.Definition(t.Context(), cluster, boundWidgets)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func over(changed []context.Context) bool {
	for _, c := range changed {
		if c.Err() != nil {
			return true
		}
	}
	return false
}

func TestWhatIsBoundIsOneContentForAllClustersAndCostsNoRead(t *testing.T) {
	s := newSharing(t)
	s.schemas.Set(copied("1", "1"))
	for _, cluster := range []string{"x7", "y7"} {
		s.bindings.Set(boundIn(cluster, "1"))
	}
	until.So(t, "the caches have it", func() bool { return len(s.Definitions("x7")) == 1 && len(s.Definitions("y7")) == 1 })
	x, y := s.find(t, "x7"), s.find(t, "y7")
	if x == nil || y == nil || x.Content != y.Content || x.when.Cluster != "x7" || x.when.Name != "w" || x.when.Resource.Resource != "apibindings" {
		t.Fatalf("%+v, %+v", x, y)
	}
	if s.reads != 0 {
		t.Errorf("%d reads of storage for what the caches have", s.reads)
	}
	if s.find(t, "z7") != nil || s.reads != 2 {
		t.Errorf("what nobody has: found, or not looked for in storage: %d reads", s.reads)
	}
}

// A replica serves at once what another one has been told of.
func TestALateCacheAsksStorageWhatIsBound(t *testing.T) {
	s := newSharing(t)
	b := boundIn("x7", "1")
	b.ResourceVersion = "5"
	s.stored = append(s.stored, b)
	d := s.find(t, "x7")
	if d == nil || d.when.Revision != 5 {
		t.Fatalf("%+v", d)
	}
	gone := b.DeepCopy()
	now := metav1.Unix(1000, 0)
	gone.DeletionTimestamp, gone.ResourceVersion = &now, "6"
	s.stored[0] = gone
	if again, err := d.again(t.Context()); err != nil || !again.Terminating || again.when.Revision != 6 || over(d.changed) {
		t.Errorf("once it is being deleted: %+v, %v", again, err)
	}
	s.stored = nil
	if again, err := d.again(t.Context()); err != nil || again != nil {
		t.Errorf("once it is gone: %+v, %v", again, err)
	}
	missing := boundIn("y7", "3")
	missing.ResourceVersion = "7"
	s.stored = append(s.stored, missing)
	if d, err := s.Definition(t.Context(), "y7", boundWidgets); err == nil || d != nil {
		t.Errorf("without its schema: %+v, %v", d, err)
	}
}

func TestWatchesEndWhenABindingSaysSomethingElse(t *testing.T) {
	s := newSharing(t)
	s.schemas.Set(copied("1", "1"))
	s.schemas.Set(copied("2", "2"))
	s.bindings.Set(boundIn("x7", "1"))
	s.bindings.Set(boundIn("y7", "1"))
	until.So(t, "the caches have it", func() bool {
		return len(s.Definitions("x7")) == 1 && len(s.Definitions("y7")) == 1 && s.informers.APIResourceSchemas.Len() == 2
	})
	x, y, all := s.find(t, "x7"), s.find(t, "y7"), s.Everywhere(boundWidgets)
	if len(all.Contents) != 1 {
		t.Fatalf("%d contents", len(all.Contents))
	}
	labelled := boundIn("x7", "1")
	labelled.Labels = map[string]string{"a": "b"}
	s.bindings.Set(labelled)
	until.So(t, "the label is there", func() bool { return s.find(t, "x7").when != x.when })
	if over(x.changed) || over(all.changed) {
		t.Error("watches end with a label")
	}
	s.bindings.Set(boundIn("x7", "2"))
	until.So(t, "it is another schema", func() bool { return over(x.changed) && over(all.changed) })
	if over(y.changed) {
		t.Error("the watches of another cluster have ended")
	}
	if all = s.Everywhere(boundWidgets); len(all.Contents) != 2 {
		t.Errorf("%d contents", len(all.Contents))
	}
	s.bindings.Delete(clusters.Key{Cluster: "x7", Name: "w"})
	until.So(t, "one is left", func() bool { return over(all.changed) && len(s.Everywhere(boundWidgets).Contents) == 1 })
	if s.find(t, "x7") != nil {
		t.Error("it is there without a binding")
	}
}

// Reads over all clusters go on only as long as all clusters agree, whichever way they say it.
func TestAllClustersAreToldOfDefinitionsAndBindingsAlike(t *testing.T) {
	s := newSharing(t)
	s.schemas.Set(copied("1", "1"))
	s.bindings.Set(boundIn("x7", "1"))
	until.So(t, "the caches have it", func() bool { return len(s.Definitions("x7")) == 1 })
	all := s.Everywhere(boundWidgets)
	d := controllertest.Definition("y7", "example.com", "Widget", apiextensionsv1.NamespaceScoped)
	s.definitions.Set(d)
	until.So(t, "a definition ends it", func() bool { return over(all.changed) })
	if all = s.Everywhere(boundWidgets); len(all.Contents) != 2 {
		t.Errorf("%d contents", len(all.Contents))
	}
	s.definitions.Delete(clusters.Key{Cluster: "y7", Name: "widgets.example.com"})
	until.So(t, "they agree again", func() bool { return over(all.changed) && len(s.Everywhere(boundWidgets).Contents) == 1 })
	if none := s.Everywhere(schema.GroupResource{Group: "example.com", Resource: "nothings"}); len(none.Contents) != 0 || len(s.Union[0].(*Own).answers.everywhere) > 1 {
		t.Errorf("what nobody has is remembered: %v", s.Union[0].(*Own).answers.everywhere)
	}
}

// However late a replica hears of it, it makes no object of a binding that is being deleted, or has gone: nobody would
// delete the object.
func TestALateReplicaMakesNothingThatOutlivesItsBinding(t *testing.T) {
	const at = "/registry/apis.kcp.io/apibindings/x7/w"
	l := newLate(t)
	s := newSharing(t)
	put := func(b binding) {
		t.Helper()
		resp, err := l.client.Etcd().Put(t.Context(), at, b.Name)
		if err != nil {
			t.Fatal(err)
		}
		b.ResourceVersion = strconv.FormatInt(resp.Header.Revision, 10)
		s.stored = []binding{b}
	}
	put(boundIn("x7", "1"))
	replica := l.by(t, s.find(t, "x7"))
	if code := replica.create(t, "a"); code != http.StatusCreated {
		t.Fatalf("create: %d", code)
	}
	labelled := boundIn("x7", "1")
	labelled.Labels = map[string]string{"a": "b"}
	put(labelled)
	if code := replica.create(t, "b"); code != http.StatusCreated {
		t.Errorf("after a change that is none to objects: %d", code)
	}
	leaving := boundIn("x7", "1")
	now := metav1.Unix(1000, 0)
	leaving.DeletionTimestamp = &now
	put(leaving)
	if code := replica.create(t, "c"); code != http.StatusForbidden {
		t.Errorf("while it is being deleted: %d, want %d", code, http.StatusForbidden)
	}
	if _, err := l.client.Etcd().Delete(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	s.stored = nil
	if code := replica.create(t, "d"); code != http.StatusForbidden {
		t.Errorf("once it is gone: %d, want %d", code, http.StatusForbidden)
	}
	if keys := l.keys(t); keys != 2 {
		t.Errorf("%d objects are stored, want 2", keys)
	}
}

// knownSource says one thing for ever.
type knownSource struct{ is *Definition }

func (k knownSource) Definition(context.Context, logicalcluster.Name, schema.GroupResource) (*Definition, error) {
	return k.is, nil
}
func (k knownSource) Definitions(logicalcluster.Name) []*Definition { return nil }
func (k knownSource) Everywhere(schema.GroupResource) Everywhere    { return Everywhere{} }

// by returns a replica that has heard of one definition, and of nothing since.
func (l *late) by(t *testing.T, d *Definition) *late {
	t.Helper()
	listener := httptest.NewServer(inCluster(l.server.Wrap(knownSource{d}, func(string) bool { return false }, http.NotFoundHandler())))
	t.Cleanup(listener.Close)
	return &late{world: &world{url: listener.URL}, client: l.client}
}
