package custom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/test/until"
)

var widgetsResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// inClusters returns what so many clusters define, all of them the same, and a function that has the first one say
// something else.
func inClusters(t *testing.T, n int) (*Own, func(properties string)) {
	t.Helper()
	source := controllertest.NewSource[crd]()
	in := func(cluster logicalcluster.Name, properties string) crd {
		d := widgets(properties)
		d.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster.String()}
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		return d
	}
	for i := range n {
		source.Set(in(logicalcluster.Name(fmt.Sprintf("c%05d", i)), ""))
	}
	informer := controllertest.Informer(t, source, controllers.DefinitionIndexers())
	own := NewOwn(informer, &Contents{}, nil)
	first := clusters.Key{Cluster: "c00000", Name: "widgets.example.com"}
	revision := n
	return own, func(properties string) {
		source.Set(in("c00000", properties))
		revision++
		until.So(t, "the cache has it", func() bool {
			d, _ := informer.Get(first)
			return d.ResourceVersion == strconv.Itoa(revision)
		})
		own.refresh(first)
	}
}

func TestWhatAllClustersDefineChangesWithEachOfThem(t *testing.T) {
	own, change := inClusters(t, 3)
	before := own.Everywhere(widgetsResource)
	if len(before.Contents) != 1 {
		t.Fatalf("%d contents", len(before.Contents))
	}
	if again := own.Everywhere(widgetsResource); again.changed[0] != before.changed[0] {
		t.Error("nothing has changed, and watches would not know when something does")
	}
	change(`, "size": {"type": "integer"}`)
	if !over(before.changed) || len(own.Everywhere(widgetsResource).Contents) != 2 {
		t.Error("one says something else, and watches go on")
	}
	change("")
	if got := own.Everywhere(widgetsResource); len(got.Contents) != 1 || got.Contents[0] != before.Contents[0] || over(got.changed) {
		t.Errorf("all say the same again: %d contents", len(got.Contents))
	}
	if none := own.Everywhere(schema.GroupResource{Group: "example.com", Resource: "gadgets"}); len(none.Contents) != 0 || len(own.answers.everywhere) != 1 {
		t.Errorf("what nobody defines: %d contents, %d names are kept", len(none.Contents), len(own.answers.everywhere))
	}
}

// What is done is counted in allocations, which do not depend on how fast the machine is.
func TestAChangeIsLookedAtWithoutTheOtherClusters(t *testing.T) {
	cost := func(n int) float64 {
		own, _ := inClusters(t, n)
		own.Everywhere(widgetsResource)
		return testing.AllocsPerRun(50, func() {
			own.refresh(clusters.Key{Cluster: "c00000", Name: "widgets.example.com"})
			own.Everywhere(widgetsResource)
		})
	}
	if few, many := cost(2), cost(2000); many > few+5 {
		t.Errorf("%v allocations with 2 clusters, %v with 2,000", few, many)
	}
}

// In one group or in many, what is made for a document grows no faster than the definitions of which it tells: it is
// counted in bytes.
func TestDocumentsTakeNoMoreThanTheirDefinitions(t *testing.T) {
	for _, apart := range []bool{false, true} {
		made := func(n int) uint64 {
			all := definitionsOf(t, n, apart)
			for _, path := range []string{"/apis", "/openapi/v3"} { // what is built in is asked for once
				answerDocument(t, newDocuments(), path, all[:1])
			}
			docs := newDocuments()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, path := range []string{"/apis", "/apis/" + all[0].spec.Group, "/apis/" + all[0].spec.Group + "/v1", "/openapi/v3"} {
				answerDocument(t, docs, path, all)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if few, many := made(100), made(4000); many > 60*few {
			t.Errorf("each in a group of its own: %v: %d bytes for 100 definitions, %d for 4,000", apart, few, many)
		}
	}
}

func answerDocument(t *testing.T, docs *documents, path string, definitions []*Definition) {
	t.Helper()
	answer := httptest.NewRecorder()
	if ok, err := docs.serve(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), definitions, http.HandlerFunc(builtIn)); !ok || err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%s: %v %v %d", path, ok, err, answer.Code)
	}
}

// definitionsOf returns definitions, ordered as a Source orders them.
func definitionsOf(t *testing.T, n int, apart bool) (all []*Definition) {
	t.Helper()
	contents := &Contents{}
	for i := range n {
		d := widgets("")
		if apart {
			d.Spec.Group = fmt.Sprintf("g%05d.example.com", i)
		}
		d.Status.AcceptedNames.Plural = fmt.Sprintf("w%05d", i)
		content, err := contents.Of(&d.Spec, &d.Status.AcceptedNames)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &Definition{Content: content})
	}
	return all
}
