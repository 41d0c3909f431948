package bundles

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// What is written unchecked is new, and belongs to what is new, owners first. What is there already, what nobody
// serves, what is large, in no namespace that is there or not what its key says, and what belongs to something that
// comes later is left to the API.
func TestWhatIsWrittenUncheckedIsNewAndBelongsToWhatIsNew(t *testing.T) {
	of := bundleWith(t, map[string]string{
		inApp + "a":                 configMap("a", "1", "x", ownedBy("2")),
		inApp + "b":                 configMap("b", "2", "x", ownedBy("3")),
		inApp + "c":                 configMap("c", "3", "x", `"managedFields":[{"manager":"kubectl"}]`, `"annotations":{"internal.regent.dev/version":"7","note":"n"}`),
		inApp + "going":             configMap("going", "4", "x", `"deletionTimestamp":"2026-01-01T00:00:00Z"`),
		inApp + "later":             configMap("later", "5", "x", ownedBy("10")),
		inApp + "there":             configMap("there", "6", "x"),
		inApp + "large":             configMap("large", "13", strings.Repeat("x", maxUnchecked)),
		inApp + "of-another-kind":   `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"of-another-kind","namespace":"app","uid":"14"}}`,
		"custom/example.com/Gone/v": `{"kind":"W","apiVersion":"example.com/v1","metadata":{"name":"v","uid":"15"},"Kind":5}`,
		inApp + "unreadable":        "unreadable",
		"core/configmaps/none/a":    `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"none","uid":"12"}}`,
		inApp + "kube-root-ca.crt":  configMap("kube-root-ca.crt", "7", "x"),
		"core/namespaces/app":       `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"app","uid":"8"}}`,
		"core/secrets/app/token":    `{"kind":"Secret","apiVersion":"v1","type":"kubernetes.io/service-account-token","metadata":{"name":"token","namespace":"app","uid":"9"}}`,
		"custom/example.com/W/w":    `{"kind":"W","apiVersion":"example.com/v1","metadata":{"name":"w","uid":"10"}}`,
		"custom/example.com/Gone/w": `{"kind":"Gone","apiVersion":"example.com/v1","metadata":{"name":"w","uid":"11"}}`,
	})
	i := &importer{options: ImportOptions{Unchecked: true}, uids: map[types.UID]types.UID{}, byName: map[string]*destination{}}
	if err := i.prepare([]*bundle.Bundle{of}, logicalcluster.NewPath("root:new")); err != nil {
		t.Fatal(err)
	}
	d := i.places[0]
	d.cluster = "new-cluster"
	s := &freezing{plain: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(clientOf(server).At(d.to))
	if err != nil {
		t.Fatal(err)
	}
	there := map[schema.GroupVersionKind]map[string]bool{
		{Version: "v1", Kind: "ConfigMap"}:                  {"app/there": true},
		{Version: "v1", Kind: "Namespace"}:                  {"/app": true},
		{Version: "v1", Kind: "Secret"}:                     {},
		{Group: "example.com", Version: "v1", Kind: "W"}:    {},
		{Group: "example.com", Version: "v1", Kind: "Gone"}: nil,
	}
	begun := time.Now().Truncate(time.Second) // a time in JSON has no more
	for phase := range phases {
		err := whileFrozen(t.Context(), &frozen{client: client.RESTClient(), path: bundle.FreezePath}, func(ctx context.Context, f *frozen) error {
			return (&unchecked{importer: i, to: d, frozen: f, there: there}).write(ctx, phase)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := [][]string{{inApp + "c"}, {inApp + "b"}, {inApp + "a"}, {"custom/example.com/W/w"}}; !reflect.DeepEqual(s.pages, want) {
		t.Errorf("written: %v, want %v", s.pages, want)
	}
	for key := range s.plain {
		if !d.written[key] {
			t.Errorf("%s is written, and would be created through the API, too", key)
		}
	}
	if i.report.Created != len(s.plain) || len(d.written) != len(s.plain) || len(i.report.Left)+len(i.report.Refused) > 0 {
		t.Errorf("%d objects are written, and the report says %+v", len(s.plain), i.report)
	}
	is := func(key string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(s.plain[key]), &obj.Object); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return obj
	}
	a, b, c := is(inApp+"a"), is(inApp+"b"), is(inApp+"c")
	if a.GetOwnerReferences()[0].UID != b.GetUID() || b.GetOwnerReferences()[0].UID != c.GetUID() || len(c.GetUID()) != len("00000000-0000-0000-0000-000000000000") {
		t.Errorf("%v belongs to %v, and that to %v", a.Object, b.Object, c.Object)
	}
	if got := c.GetAnnotations(); !reflect.DeepEqual(got, map[string]string{"note": "n", logicalcluster.AnnotationKey: "new-cluster"}) {
		t.Errorf("its annotations are %v", got)
	}
	if made := c.GetCreationTimestamp(); len(c.GetManagedFields()) != 1 || made.Time.Before(begun) || strings.Contains(s.plain[inApp+"c"], `"3"`) {
		t.Errorf("it is %s", s.plain[inApp+"c"])
	}
}

// A bundle of a stranger may have lines with nothing in them.
func TestALineWithNothingInItIsRefused(t *testing.T) {
	if obj, err := (&importer{}).decode(bundle.Object{Key: inApp + "a"}); err == nil {
		t.Errorf("it is %v", obj)
	}
}

// What is more than a page is written in several, two of them at a time, and if one is refused the rest does not count.
func TestPagesAreWrittenTwoAtATime(t *testing.T) {
	for _, refused := range []int{0, 2} {
		var mu sync.Mutex
		under, most, pages := 0, 0, 0
		begin := func() int {
			mu.Lock()
			defer mu.Unlock()
			under, pages = under+1, pages+1
			most = max(most, under)
			return pages
		}
		end := func() {
			mu.Lock()
			defer mu.Unlock()
			under--
		}
		two := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPut && req.ContentLength > 0 {
				page := begin()
				defer end()
				switch page {
				case 1:
					<-two // until the next one is there
				case 2:
					close(two)
				}
				if page == refused {
					http.Error(w, "refused", http.StatusBadRequest)
					return
				}
			}
			_, _ = w.Write([]byte(`{"freeze":"1","revision":7,"seconds":10}`))
		}))
		client, err := discovery.NewDiscoveryClientForConfig(clientOf(server).At(logicalcluster.NewPath("root:team")))
		if err != nil {
			t.Fatal(err)
		}
		err = whileFrozen(t.Context(), &frozen{client: client.RESTClient(), path: bundle.FreezePath}, func(ctx context.Context, f *frozen) error {
			for range 5 {
				if err := f.add(ctx, bundle.Object{Key: inApp + "a", Object: json.RawMessage(`"` + strings.Repeat("x", writeBytes) + `"`)}); err != nil {
					return err
				}
			}
			return f.flush(ctx)
		})
		server.Close()
		if (err != nil) != (refused > 0) || most != pagesAtOnce || refused == 0 && pages != 5 || under != 0 {
			t.Errorf("%d pages, %d at a time, and %d still under way, with page %d refused: %v", pages, most, under, refused, err)
		}
	}
}
