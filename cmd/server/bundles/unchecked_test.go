package bundles

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strings"
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
// serves, and what belongs to something that comes later is left to the API.
func TestWhatIsWrittenUncheckedIsNewAndBelongsToWhatIsNew(t *testing.T) {
	of := bundleWith(t, map[string]string{
		inApp + "a":                 configMap("a", "1", "x", ownedBy("2")),
		inApp + "b":                 configMap("b", "2", "x", ownedBy("3")),
		inApp + "c":                 configMap("c", "3", "x", `"managedFields":[{"manager":"kubectl"}]`, `"annotations":{"internal.regent.dev/version":"7","note":"n"}`),
		inApp + "going":             configMap("going", "4", "x", `"deletionTimestamp":"2026-01-01T00:00:00Z"`),
		inApp + "later":             configMap("later", "5", "x", ownedBy("10")),
		inApp + "there":             configMap("there", "6", "x"),
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
