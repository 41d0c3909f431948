package custom

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// without takes the first version off a definition.
func without(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	d.Spec.Versions = d.Spec.Versions[1:]
	return d
}

// heldWidget is an object in v1 with finalizers and a list of who manages what.
func heldWidget(name, spec string) string {
	return strings.Replace(widget(name, spec), `"metadata":{`, `"metadata":{"finalizers":["example.com/a","example.com/b"],`, 1)
}

// Whoever ends a migration too early, by two patches, can go on with what it has missed.
func TestObjectsOfAVersionThatWasLostAreShownChangedAndDeleted(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", twoVersions("v1"))
	for _, name := range []string{"a", "b"} {
		w.create(t, "aa"+widgetsIn+"?fieldManager=one", heldWidget(name, `{"color":"red","size":1}`))
	}
	w.define(t, "aa", without(twoVersions("v2")))
	w.create(t, "aa"+widgets2, widget2("new", `{"color":"blue"}`))
	events := w.watchRaw(t, "aa"+widgets2+"?watch=true")
	for range 3 {
		if e := <-events; e["type"] != "ADDED" || e["object"].(object1)["apiVersion"] != "example.com/v2" {
			t.Errorf("watch: %v", e)
		}
	}
	if got := names(w.get(t, "aa"+widgets2)); !slices.Equal(got, []string{"a", "b", "new"}) {
		t.Errorf("list: %v", got)
	}
	if got := names(w.get(t, "aa"+widgets2+"?fieldSelector=spec.size%3D1")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("list by a field: %v", got)
	}
	if got := w.get(t, "aa"+widgets2+"/a"); got["apiVersion"] != "example.com/v2" || !reflect.DeepEqual(specOf(got), object1{"color": "red", "size": 1.0, "shape": "round"}) {
		t.Errorf("get: %v", got)
	}
	for _, c := range []struct{ name, query, kind, body string }{
		{"a", "", "application/merge-patch+json", `{"spec":{"size":3}}`},
		{"b", "&force=true", apply, widget2("b", `{"size":3}`)},
	} {
		if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/"+c.name+"?fieldManager=two"+c.query, c.kind, c.body); code != http.StatusOK {
			t.Errorf("%s: %d %v", c.kind, code, out)
		}
	}
	for _, name := range []string{"a", "b"} {
		if got := w.get(t, "aa"+widgets2+"/"+name); specOf(got)["size"] != 3.0 || specOf(got)["color"] != "red" || !strings.Contains(fmt.Sprint(got["metadata"]), "manager:one") {
			t.Errorf("changed: %v", got)
		}
	}
	if got := w.storedVersions(t, "aa"); len(got) != 1 {
		t.Errorf("a write does not migrate: %v", got)
	}
	for _, name := range []string{"a", "b"} {
		if code, out := w.do(t, http.MethodDelete, "aa"+widgets2+"/"+name, "application/json", ""); code != http.StatusOK {
			t.Errorf("delete %s: %d %v", name, code, out)
		}
		if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/"+name, "application/merge-patch+json", `{"metadata":{"finalizers":null}}`); code != http.StatusOK {
			t.Errorf("the finalizers of %s: %d %v", name, code, out)
		}
	}
	if got := w.storedVersions(t, "aa"); len(got) != 1 || got["example.com/v2"] != 1 {
		t.Errorf("what is left: %v", got)
	}
}

// Only a webhook knows how to convert. Controllers ask for metadata, and delete, without one, and lose nothing of what
// a user may get back. Users are told what to do.
func TestObjectsOfALostVersionAreDeletedByControllersWithoutAWebhook(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	for _, name := range []string{"gone", "kept"} {
		w.create(t, "aa"+widgetsIn, heldWidget(name, `{"color":"red"}`))
	}
	w.define(t, "aa", without(h.converted("v2")))
	code, out := w.do(t, http.MethodGet, "aa"+widgets2+"/kept", "", "")
	if message, _ := out["message"].(string); code != http.StatusInternalServerError || !strings.Contains(message, "add v1 to spec.versions again") {
		t.Errorf("a user: %d %v", code, out)
	}
	w.own.Store(true)
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	const metadatas = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	if code, out := w.accept(t, http.MethodGet, "aa/apis/example.com/v2/widgets", metadatas, "", ""); code != http.StatusOK || !slices.Equal(names(out), []string{"gone", "kept"}) {
		t.Errorf("list: %d %v", code, out)
	}
	for _, name := range []string{"gone", "kept"} {
		if code, out := w.accept(t, http.MethodGet, "aa"+widgets2+"/"+name, metadata, "", ""); code != http.StatusOK {
			t.Errorf("get %s: %d %v", name, code, out)
		}
	}
	patch := `{"metadata":{"finalizers":["example.com/b"]}}`
	if code, out := w.accept(t, http.MethodPatch, "aa"+widgets2+"/kept", metadata, "application/merge-patch+json", patch); code != http.StatusOK {
		t.Errorf("patch: %d %v", code, out)
	}
	if code, out := w.do(t, http.MethodDelete, "aa"+widgets2+"/gone", "application/json", ""); code != http.StatusOK {
		t.Errorf("delete: %d %v", code, out)
	}
	if code, out := w.accept(t, http.MethodPatch, "aa"+widgets2+"/gone", metadata, "application/merge-patch+json", `{"metadata":{"finalizers":null}}`); code != http.StatusOK {
		t.Errorf("finalizers: %d %v", code, out)
	}
	w.own.Store(false)
	w.define(t, "aa", h.converted("v2"))
	if got := names(w.get(t, "aa"+widgets2)); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("what is left: %v", got)
	}
	if got := specOf(w.get(t, "aa"+widgets2+"/kept")); got["paint"] != "red" {
		t.Errorf("what it has: %v", got)
	}
}
