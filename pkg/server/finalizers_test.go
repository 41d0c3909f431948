package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Somebody deletes an object while its controller gives it a finalizer. If the controller is told that the finalizer is
// there, the object does not go without it.
func TestAFinalizerThatWasGivenIsNotPassedOver(t *testing.T) {
	r := startWithNeighbours(t)
	const things = "/apis/example.com/v1/namespaces/default/things"
	if code, answer := r.try(t.Context(), http.MethodPost, "own", crdsPath, badDefinition("things", `{"type":"object"}`)); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	r.establish(t, "own", "things.example.com", "things")
	for path, head := range map[string]string{
		"/api/v1/namespaces/default/configmaps": `"apiVersion":"v1","kind":"ConfigMap"`,
		things:                                  `"apiVersion":"example.com/v1","kind":"Kthings"`,
	} {
		both := 0
		for n := range 300 {
			at := fmt.Sprintf("%s/f%d", path, n)
			code, answer := r.try(t.Context(), http.MethodPost, "own", path, fmt.Sprintf(`{%s,"metadata":{"name":"f%d"}}`, head, n))
			var made metav1.PartialObjectMetadata
			if err := json.Unmarshal([]byte(answer), &made); err != nil || code != http.StatusCreated {
				t.Fatal(code, answer)
			}
			var deleted, given int
			var said string
			var asked sync.WaitGroup
			asked.Go(func() { deleted, said = r.try(t.Context(), http.MethodDelete, "own", at, "") })
			asked.Go(func() {
				given, _ = r.try(t.Context(), http.MethodPut, "own", at, fmt.Sprintf(`{%s,"metadata":{"name":"f%d","resourceVersion":%q,"finalizers":["example.com/mine"]}}`, head, n, made.ResourceVersion))
			})
			asked.Wait()
			there, object := r.try(t.Context(), http.MethodGet, "own", at, "")
			switch {
			case deleted != http.StatusOK:
				t.Fatalf("the deletion is answered with %d: %s", deleted, said)
			case given == http.StatusOK && there != http.StatusOK:
				t.Fatalf("%s has gone without its finalizer, %d attempts", at, n+1)
			case given == http.StatusOK && !strings.Contains(object, `"deletionTimestamp"`):
				t.Fatalf("the deletion was accepted, and is forgotten: %s", object)
			case given == http.StatusOK:
				both++
			case there != http.StatusNotFound:
				t.Fatalf("it is there without a finalizer: %s", object)
			}
		}
		if both == 0 {
			t.Errorf("%s: the finalizer was never given in time", path)
		}
	}
}
