package server

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// sampled is a definition as it stands when its names have been accepted.
const sampled = `{
apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
spec: {group: example.com, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [{
  name: v1, served: true, storage: true,
  subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}},
  schema: {openAPIV3Schema: {type: object, properties: {
    spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}}}}]},
status: {acceptedNames: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, storedVersions: [v1], conditions: [
  {type: NamesAccepted, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z', reason: NoConflicts, message: m},
  {type: Established, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z', reason: InitialNamesAccepted, message: m}]}}`

// defineSampled has the target's cluster define what the target is. There is no controller here that would.
func defineSampled(t *testing.T, o target) {
	t.Helper()
	definitions := o.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: fromYAML(sampled)}
	if _, err := definitions.Create(o.ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(map[string]any{"status": definition.Object["status"]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Patch(o.ctx, definition.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// Custom objects are written by a handler of their own. What holds for every other resource holds for them: see
// TestEveryWriteOfEveryResourceIsHeldToItsToken.
func TestEveryWriteOfACustomObjectIsHeldToItsToken(t *testing.T) {
	s := startFencedShard(t)
	s.over["an earlier epoch, from outside"] = s.outside
	whole := writable{
		gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, kind: "Widget", namespaced: true, define: defineSampled,
		verbs: []string{"create", "update", "patch", "delete", "deletecollection"}, whole: sample{body: "{spec: {replicas: 1}}"},
	}
	status, scale := whole, whole
	status.subresources, status.part, status.verbs = []string{"status"}, sample{change: "{status: {replicas: 2}}"}, []string{"update", "patch"}
	scale.subresources, scale.part, scale.verbs = []string{"scale"}, sample{change: "{spec: {replicas: 3}}"}, status.verbs
	for _, r := range []writable{whole, status, scale} {
		s.holdsToTokens(t, r, func(w kindOfWrite) bool { return !withoutSense(r, w) })
	}
}

// withoutSense reports whether a kind of write is none for a part of a custom object.
func withoutSense(r writable, w kindOfWrite) bool {
	switch {
	case w.name == "strategic merge patch":
		return true // it needs Go types: 415
	case len(r.subresources) == 0:
		return false
	case r.subresources[0] == "status":
		return w.name == "JSON patch" // there is no status yet to which it could add
	case strings.Contains(w.name, "apply"):
		return true // it would have to be of a Scale
	default:
		return strings.HasSuffix(w.name, "changes nothing") // upstream notes who scales, even so
	}
}
