package custom

import (
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/until"
)

func specOf(obj map[string]any) map[string]any { return obj["spec"].(map[string]any) }

func names(list map[string]any) (all []string) {
	for _, item := range list["items"].([]any) {
		all = append(all, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return all
}

func TestTwoClustersDefineTheSameNameInDifferentWays(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "size": {"type": "integer", "default": 3}`))
	w.define(t, "bb", widgets(`, "shape": {"type": "string", "default": "round"}`))
	for _, cluster := range []string{"aa", "bb"} {
		w.create(t, cluster+widgetsIn, widget("x", `{"color":"red","size":5,"shape":"flat"}`))
		w.create(t, cluster+widgetsIn, widget("only-in-"+cluster, `{}`))
	}
	for cluster, want := range map[string]struct{ given, defaulted map[string]any }{
		"aa": {map[string]any{"color": "red", "size": 5.0}, map[string]any{"size": 3.0}},
		"bb": {map[string]any{"color": "red", "shape": "flat"}, map[string]any{"shape": "round"}},
	} {
		for name, want := range map[string]map[string]any{"x": want.given, "only-in-" + cluster: want.defaulted} {
			if got := specOf(w.get(t, cluster+widgetsIn+"/"+name)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s of %s: %v, want %v", name, cluster, got, want)
			}
		}
		if got := names(w.get(t, cluster+widgetsIn)); !slices.Equal(got, []string{"only-in-" + cluster, "x"}) {
			t.Errorf("the list of %s: %v", cluster, got)
		}
	}
	if code, _ := w.do(t, http.MethodGet, "cc"+widgetsIn, "", ""); code != http.StatusNotFound {
		t.Errorf("a cluster without the definition answers %d", code)
	}
	if got := w.contents.Len(); got != 2 {
		t.Errorf("%d contents, want 2", got)
	}
}

func TestClustersThatDefineTheSameShareWhatServesIt(t *testing.T) {
	w := newWorld(t)
	a := w.define(t, "aa", widgets(""))
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	before := runtime.NumGoroutine()
	for n := range 100 {
		cluster := fmt.Sprintf("cc%d", n)
		if d := w.define(t, logicalcluster.Name(cluster), widgets("")); d.Content != a.Content {
			t.Fatalf("%s has a content of its own", cluster)
		}
		w.create(t, cluster+widgetsIn, widget("x", `{}`))
	}
	if after := runtime.NumGoroutine(); after > before+20 { // connections come and go
		t.Errorf("%d goroutines, %d after 100 more clusters", before, after)
	}
	if got := len(w.server.handlers.recent.entries); got != 1 {
		t.Errorf("%d handlers for one content", got)
	}
}

func TestWhatNobodyDefinesAnyMoreIsCollected(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "size": {"type": "integer"}`))
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	w.define(t, "aa", widgets(`, "shape": {"type": "string"}`))
	w.get(t, "aa"+widgetsIn+"/x")
	until.So(t, "the first content is collected", func() bool {
		runtime.GC()
		w.server.handlers.mu.Lock()
		defer w.server.handlers.mu.Unlock()
		return w.contents.Len() == 1 && len(w.server.handlers.recent.entries) == 1
	})
}

func TestAWatchSeesItsClusterAndKindOnly(t *testing.T) {
	w := newWorld(t)
	gadgets := widgets("")
	gadgets.Name, gadgets.Spec.Names.Plural, gadgets.Spec.Names.Kind = "gadgets.example.com", "gadgets", "Gadget"
	gadgets.Status.AcceptedNames = gadgets.Spec.Names
	for _, cluster := range []string{"aa", "bb"} {
		w.define(t, logicalcluster.Name(cluster), widgets(""))
		w.define(t, logicalcluster.Name(cluster), gadgets)
	}
	events := w.watch(t, "aa"+widgetsIn+"?watch=true")
	w.create(t, "bb"+widgetsIn, widget("other-cluster", `{}`))
	w.create(t, "aa"+strings.Replace(widgetsIn, "widgets", "gadgets", 1), strings.Replace(widget("other-kind", `{}`), "Widget", "Gadget", 1))
	w.create(t, "aa"+strings.Replace(widgetsIn, "default", "other", 1), widget("other-namespace", `{}`))
	w.create(t, "aa"+widgetsIn, widget("mine", `{}`))
	if got := next(t, events, 1); got[0] != "ADDED mine" {
		t.Errorf("the first event is %q", got)
	}
}

// The watch cache knows no fields of definitions. It must tell nevertheless when an object begins to match, and when it
// does not match any more.
func TestAWatchByASelectableFieldTellsWhatComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	w.create(t, "aa"+widgetsIn, widget("x", `{"color":"blue"}`))
	w.create(t, "aa"+widgetsIn, widget("y", `{"color":"red"}`))
	if got := names(w.get(t, "aa"+widgetsIn+"?fieldSelector=spec.color%3Dblue")); !slices.Equal(got, []string{"x"}) {
		t.Errorf("a list has %v", got)
	}
	from := w.get(t, "aa"+widgetsIn)["metadata"].(map[string]any)["resourceVersion"].(string)
	events := w.watch(t, "aa"+widgetsIn+"?watch=true&fieldSelector=spec.color%3Dblue&resourceVersion="+from)
	paint := func(name, color string) {
		t.Helper()
		if code, out := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/"+name, "application/merge-patch+json", `{"spec":{"color":"`+color+`"}}`); code != http.StatusOK {
			t.Fatalf("%d %v", code, out)
		}
	}
	paint("y", "blue")
	paint("x", "red")
	paint("x", "green")
	paint("y", "blue ") // no longer
	want := []string{"ADDED y", "DELETED x", "DELETED y"}
	if got := next(t, events, len(want)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if code, _ := w.do(t, http.MethodGet, "aa"+widgetsIn+"?fieldSelector=spec.size%3D1", "", ""); code != http.StatusBadRequest {
		t.Errorf("a field that is not selectable: %d", code)
	}
}

func TestWatchesEndWhenTheirDefinitionChanges(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	w.define(t, "bb", widgets(""))
	ends, stays := w.watch(t, "aa"+widgetsIn+"?watch=true"), w.watch(t, "bb"+widgetsIn+"?watch=true")
	w.define(t, "aa", widgets(`, "size": {"type": "integer"}`))
	if e, ok := <-ends; ok {
		t.Errorf("the watch goes on with %q", e)
	}
	w.create(t, "bb"+widgetsIn, widget("x", `{}`))
	if got := next(t, stays, 1); got[0] != "ADDED x" {
		t.Errorf("the other cluster's watch: %q", got)
	}
}

func TestManyWatchersSeeOneEvent(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	watches := make([]<-chan string, 20)
	for n := range watches {
		watches[n] = w.watch(t, "aa"+widgetsIn+"?watch=true")
	}
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	if code, out := w.do(t, http.MethodDelete, "aa"+widgetsIn+"/x", "", ""); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	for n, events := range watches {
		if got := next(t, events, 2); !slices.Equal(got, []string{"ADDED x", "DELETED x"}) {
			t.Errorf("watcher %d: %q", n, got)
		}
	}
}

func TestObjectsOfAllClustersAreShownTogetherWhereDefinitionsAgree(t *testing.T) {
	w := newWorld(t)
	everywhere := "*/apis/example.com/v1/widgets"
	w.define(t, "aa", widgets(""))
	w.define(t, "bb", widgets(""))
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	w.create(t, "bb"+widgetsIn, widget("y", `{}`))
	if got := names(w.get(t, everywhere)); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("all clusters: %v", got)
	}
	w.define(t, "bb", widgets(`, "size": {"type": "integer"}`))
	if got := names(w.get(t, everywhere)); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("clusters that do not agree: %v", got)
	}
}

// Any tenant may define what an administrator has everywhere, in whatever way.
func TestNoDefinitionTakesAwayTheListOfAllClusters(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinitionSpec){
		"with another schema": func(s *apiextensionsv1.CustomResourceDefinitionSpec) {
			s.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		},
		"in another version": func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Versions[0].Name = "v0" },
		"of another kind": func(s *apiextensionsv1.CustomResourceDefinitionSpec) {
			s.Names.Kind, s.Names.ListKind = "Foo", "FooList"
		},
		"without a namespace": func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Scope = apiextensionsv1.ClusterScoped },
		"with a webhook that does not answer": func(s *apiextensionsv1.CustomResourceDefinitionSpec) {
			url := "https://127.0.0.1:1/"
			s.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"},
			}}
			other := *s.Versions[0].DeepCopy()
			s.Versions[0].Storage, other.Name = false, "v2"
			s.Versions = append(s.Versions, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.define(t, "aa", widgets(""))
			w.define(t, "cc", widgets(""))
			w.create(t, "aa"+widgetsIn, widget("x", `{"color":"red"}`))
			tenants := widgets("")
			change(&tenants.Spec)
			tenants.Status.AcceptedNames = tenants.Spec.Names
			w.define(t, "bb", tenants)
			version := tenants.Spec.Versions[len(tenants.Spec.Versions)-1].Name
			in := "bb/apis/example.com/" + version + "/widgets"
			if tenants.Spec.Scope == apiextensionsv1.NamespaceScoped {
				in = "bb/apis/example.com/" + version + "/namespaces/default/widgets"
			}
			spec := `{"color":"blue"}`
			if tenants.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Type == "string" {
				spec = `"blue"`
			}
			w.create(t, in, fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":%q,"metadata":{"name":"y"},"spec":%s}`, version, tenants.Spec.Names.Kind, spec))
			resp := w.raw(t, http.MethodGet, "*/apis/example.com/v1/widgets", "", "", "")
			if warned := strings.Join(resp.Header.Values("Warning"), ""); !strings.Contains(warned, "2 different ways") {
				t.Errorf("the warning is %q", warned)
			}
			list := w.get(t, "*/apis/example.com/v1/widgets")
			if got := names(list); !slices.Equal(got, []string{"x", "y"}) || list["kind"] != "WidgetList" {
				t.Fatalf("the list %v has %v", list["kind"], got)
			}
			if got := list["items"].([]any)[1].(map[string]any); got["apiVersion"] != "example.com/v1" || got["kind"] != tenants.Spec.Names.Kind || got["spec"] == nil {
				t.Errorf("the tenant's: %v", got)
			}
			if got := next(t, w.watch(t, "*/apis/example.com/v1/widgets?watch=true"), 2); !slices.Equal(got, []string{"ADDED x", "ADDED y"}) {
				t.Errorf("the watch tells %v", got)
			}
		})
	}
}

func TestNothingNewIsMadeOfADefinitionThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	leaving := widgets("")
	leaving.DeletionTimestamp = &metav1.Time{}
	w.define(t, "aa", leaving)
	w.define(t, "bb", widgets(""))
	if code, out := w.do(t, http.MethodPost, "aa"+widgetsIn, "application/json", widget("y", `{}`)); code != http.StatusForbidden {
		t.Errorf("creation: %d %v", code, out)
	}
	if code, out := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x", "application/merge-patch+json", `{"spec":{"color":"red"}}`); code != http.StatusOK {
		t.Errorf("change: %d %v", code, out)
	}
	w.create(t, "bb"+widgetsIn, widget("y", `{}`)) // which says the same, and stays
}

func TestACustomObjectIsRefusedInProtobuf(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	if code, _ := w.do(t, http.MethodPost, "aa"+widgetsIn, "application/vnd.kubernetes.protobuf", "k8s"); code != http.StatusUnsupportedMediaType {
		t.Errorf("protobuf: %d", code)
	}
}

// A rule may be cheap for what its schema lets expect, and dear for an object. What it may cost is bounded there, too.
func TestARuleThatTakesTooLongIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "l": {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 5},
		"x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x + y != 'no'))"}]}`))
	w.define(t, "bb", widgets(""))
	items := make([]string, 1000)
	for i := range items {
		items[i] = fmt.Sprintf(`"%d"`, i)
	}
	code, out := w.do(t, http.MethodPost, "aa"+widgetsIn, "application/json", widget("x", `{"l":[`+strings.Join(items, ",")+`]}`))
	// What a rule costs is counted. A machine that needs longer than a request may take gives it up by the time.
	if message, _ := out["message"].(string); code != http.StatusGatewayTimeout && (code != http.StatusUnprocessableEntity || !strings.Contains(message, "cost")) {
		t.Errorf("%d %v", code, out)
	}
	w.create(t, "aa"+widgetsIn, widget("x", `{"l":["a","b"]}`))
	w.create(t, "bb"+widgetsIn, widget("x", `{}`))
}

// An informer of metadata over all clusters is what kcp's controllers have. It tells objects of one name apart by their
// annotation.
func TestMetadataOfAllClustersIsListedAndWatched(t *testing.T) {
	w := newWorld(t)
	for _, cluster := range []string{"aa", "bb"} {
		w.define(t, logicalcluster.Name(cluster), widgets(""))
		w.create(t, cluster+widgetsIn, widget("x", `{"color":"red"}`))
	}
	client, err := metadata.NewForConfig(&rest.Config{Host: w.url + "/clusters/*"})
	if err != nil {
		t.Fatal(err)
	}
	of := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	list, err := of.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range list.Items {
		got = append(got, o.Annotations[logicalcluster.AnnotationKey]+"/"+o.Name)
	}
	if want := []string{"aa/x", "bb/x"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	events, err := of.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for _, cluster := range []string{"bb", "aa"} {
		w.touch(t, cluster+widgetsIn+"/x")
		select {
		case e := <-events.ResultChan():
			o, ok := e.Object.(*metav1.PartialObjectMetadata)
			if !ok || o.Annotations[logicalcluster.AnnotationKey] != cluster || o.Name != "x" {
				t.Errorf("%s %v, want that of %s", e.Type, e.Object, cluster)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event of %s", cluster)
		}
	}
}
