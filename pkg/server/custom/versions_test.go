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

// twoVersions is a definition in v1 and v2, which have the same fields and different defaults and selectable fields,
// without a webhook.
func twoVersions(stored string) *apiextensionsv1.CustomResourceDefinition {
	d := widgets(`, "size": {"type": "integer"}`)
	second := *d.Spec.Versions[0].DeepCopy()
	second.Name = "v2"
	second.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}}
	second.Schema.OpenAPIV3Schema.Properties["spec"].Properties["shape"] = apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"round"`)}}
	d.Spec.Versions = append(d.Spec.Versions, second)
	for i := range d.Spec.Versions {
		d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == stored
	}
	return d
}

func TestOneObjectIsSeenAndChangedInAllVersions(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", twoVersions("v1"))
	events := map[string]<-chan map[string]any{}
	in := map[string]string{"v1": "aa" + widgetsIn, "v2": "aa" + widgets2}
	for version, path := range in {
		events[version] = w.watchRaw(t, path+"?watch=true")
	}
	w.create(t, in["v1"], widget("x", `{"color":"red","size":1}`))
	for version, path := range in {
		want := object1{"color": "red", "size": 1.0}
		event := <-events[version]
		for what, got := range map[string]object1{"get": w.get(t, path+"/x"), "list": w.get(t, path)["items"].([]any)[0].(object1), "watch": event["object"].(object1)} {
			if got["apiVersion"] != "example.com/"+version || !reflect.DeepEqual(specOf(got), want) {
				t.Errorf("%s in %s: %v %v, want %v", what, version, got["apiVersion"], got["spec"], want)
			}
		}
	}
	if code, out := w.do(t, http.MethodPatch, in["v2"]+"/x", "application/merge-patch+json", `{"spec":{"size":2}}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	for query, want := range map[string]int{"v1?fieldSelector=spec.color%3Dred": 200, "v2?fieldSelector=spec.color%3Dred": 400, "v1?fieldSelector=spec.size%3D2": 400, "v2?fieldSelector=spec.size%3D2": 200} {
		version, selector, _ := strings.Cut(query, "?")
		code, out := w.do(t, http.MethodGet, in[version]+"?"+selector, "", "")
		if code != want || code == 200 && !slices.Equal(names(out), []string{"x"}) {
			t.Errorf("%s: %d %v", query, code, out)
		}
	}
	// defaults are those of the version that is stored, and of that in which something is written
	if got := specOf(w.get(t, in["v2"]+"/x"))["shape"]; got != nil {
		t.Errorf("the stored object has got a default: %v", got)
	}
	// Nothing of an object is lost that the version does not have in which it is changed: what is stored has what
	// the stored version has.
	if got := specOf(w.get(t, in["v1"]+"/x")); !reflect.DeepEqual(got, object1{"color": "red", "size": 2.0}) {
		t.Errorf("in v1: %v", got)
	}
	// The body of a write is in the version of its path.
	if code, _ := w.do(t, http.MethodPost, in["v1"], "application/json", widget2("y", `{}`)); code != http.StatusBadRequest {
		t.Errorf("an object of another version: %d", code)
	}
}

// A version may be stored no longer: each write brings an object into the one that is stored now, as Kubernetes'
// storage version migration does it.
func TestAWriteMigratesAnObjectToTheVersionThatIsStored(t *testing.T) {
	for name, define := range map[string]func(*hook) func(string) *apiextensionsv1.CustomResourceDefinition{
		"none":    func(*hook) func(string) *apiextensionsv1.CustomResourceDefinition { return twoVersions },
		"webhook": func(h *hook) func(string) *apiextensionsv1.CustomResourceDefinition { return h.converted },
	} {
		t.Run(name, func(t *testing.T) {
			w, of := newWorld(t), define(newHook(t))
			w.define(t, "aa", of("v1"))
			for n := range 5 {
				w.create(t, "aa"+widgetsIn, widget(fmt.Sprint("w", n), `{"color":"red"}`))
			}
			w.define(t, "aa", of("v2"))
			if got := w.storedVersions(t, "aa"); got["example.com/v1"] != 5 {
				t.Fatalf("before: %v", got)
			}
			for n := range 5 { // an update that changes nothing
				path := "aa" + widgets2 + "/" + fmt.Sprint("w", n)
				if code, out := w.do(t, http.MethodPatch, path, "application/merge-patch+json", `{}`); code != http.StatusOK {
					t.Fatalf("%d %v", code, out)
				}
			}
			if got := w.storedVersions(t, "aa"); got["example.com/v2"] != 5 || len(got) != 1 {
				t.Errorf("after: %v", got)
			}
			only := of("v2")
			only.Spec.Versions = only.Spec.Versions[1:]
			w.define(t, "aa", only)
			if got := names(w.get(t, "aa"+widgets2)); len(got) != 5 {
				t.Errorf("without the old version: %v", got)
			}
			if code, _ := w.do(t, http.MethodGet, "aa"+widgetsIn, "", ""); code != http.StatusNotFound {
				t.Errorf("the old version: %d", code)
			}
		})
	}
}

const apply = "application/apply-patch+yaml"

// Of a list that is a map each manager has its own entries.
func TestServerSideApplyOfCustomObjects(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "size": {"type": "integer"}, "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
		"items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}}`))
	send := func(manager, query, spec string) (int, object1) {
		return w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x?fieldManager="+manager+query, apply, widget("x", spec))
	}
	if code, out := send("one", "", `{"color":"red","ports":[{"name":"a","port":1}]}`); code != http.StatusCreated {
		t.Fatalf("%d %v", code, out)
	}
	if code, out := send("two", "", `{"size":2,"ports":[{"name":"b","port":2}]}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	ports := func() (out []string) {
		list, _ := specOf(w.get(t, "aa"+widgetsIn+"/x"))["ports"].([]any)
		for _, p := range list {
			out = append(out, fmt.Sprint(p.(object1)["name"], p.(object1)["port"]))
		}
		return out
	}
	if got := ports(); !slices.Equal(got, []string{"a1", "b2"}) {
		t.Errorf("both have applied: %v", got)
	}
	code, out := send("two", "", `{"size":2,"color":"blue","ports":[{"name":"a","port":3}]}`)
	causes := fmt.Sprint(out["details"])
	if code != http.StatusConflict || !strings.Contains(causes, ".spec.color") || !strings.Contains(causes, `.spec.ports[name="a"].port`) || !strings.Contains(fmt.Sprint(out["message"]), `"one"`) {
		t.Errorf("a conflict: %d %v", code, out)
	}
	if code, out := send("two", "&force=true", `{"size":2,"color":"blue","ports":[{"name":"a","port":3}]}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	if got := ports(); !slices.Equal(got, []string{"a3"}) { // b was the second one's, which has left it out
		t.Errorf("forced: %v", got)
	}
	if code, out := send("one", "", `{}`); code != http.StatusOK || specOf(out)["color"] != "blue" {
		t.Errorf("who has lost a field leaves it: %d %v", code, out)
	}
	if code, out := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x?fieldManager=three", apply, strings.Replace(widget("x", `{}`), `"spec"`, `"status":{"a":1},"spec"`, 1)); code != http.StatusOK || out["status"] != nil {
		t.Errorf("a status by the main resource: %d %v", code, out)
	}
	if code, out := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x/status?fieldManager=three", apply, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"status":{"a":1}}`); code != http.StatusOK || out["status"] == nil {
		t.Errorf("a status: %d %v", code, out)
	}
}

func TestFieldsThatAreUnknownAreToldOfAsAsked(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	body := strings.Replace(widget("x", `{"color":"red","colour":"blue"}`), `"metadata":{`, `"metadata":{"labelz":{"a":"b"},`, 1)
	doubled := strings.Replace(widget("x", `{"color":"red","color":"blue"}`), `"spec"`, `"spec"`, 1)
	for query, want := range map[string]struct {
		code int
		warn bool
	}{"?fieldValidation=Strict": {http.StatusBadRequest, false}, "?fieldValidation=Warn": {http.StatusCreated, true}, "?fieldValidation=Ignore": {http.StatusCreated, false}, "": {http.StatusCreated, true}} {
		for _, text := range []string{body, doubled} {
			resp := w.raw(t, http.MethodPost, "aa"+widgetsIn+query, "", "application/json", text)
			if resp.StatusCode != want.code || (len(resp.Header.Values("Warning")) > 0) != want.warn {
				t.Errorf("%q: %d, warnings %q", query, resp.StatusCode, resp.Header.Values("Warning"))
			}
			if resp.StatusCode == http.StatusCreated {
				if got := specOf(w.get(t, "aa"+widgetsIn+"/x")); got["colour"] != nil {
					t.Errorf("kept: %v", got)
				}
				w.do(t, http.MethodDelete, "aa"+widgetsIn+"/x", "", "")
			}
		}
	}
	w.create(t, "aa"+widgetsIn, widget("x", `{}`))
	for kind, text := range map[string]string{"application/merge-patch+json": `{"spec":{"colour":"x"}}`, apply: widget("x", `{"colour":"x"}`), "application/json-patch+json": `[{"op":"add","path":"/spec/colour","value":"x"}]`} {
		if code, out := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x?fieldManager=me&fieldValidation=Strict", kind, text); code < 400 || !strings.Contains(fmt.Sprint(out["message"]), "colour") {
			t.Errorf("%s: %d %v", kind, code, out)
		}
	}
	if code, _ := w.do(t, http.MethodPatch, "aa"+widgetsIn+"/x", "application/strategic-merge-patch+json", `{}`); code != http.StatusUnsupportedMediaType {
		t.Errorf("a strategic merge patch: %d", code)
	}
}

func TestCustomObjectsAreShownAsTablesAndAsMetadata(t *testing.T) {
	w := newWorld(t)
	d := widgets("")
	d.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Color", Type: "string", JSONPath: ".spec.color"}}
	w.define(t, "aa", d)
	w.define(t, "bb", widgets(""))
	for _, cluster := range []string{"aa", "bb"} {
		w.create(t, cluster+widgetsIn, widget("x", `{"color":"red"}`))
	}
	const table, metadata, list = "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for cluster, want := range map[string]string{"aa": "[Name Color]", "bb": "[Name Age]"} {
		_, out := w.accept(t, http.MethodGet, cluster+widgetsIn, table, "", "")
		var columns []any
		for _, c := range out["columnDefinitions"].([]any) {
			columns = append(columns, c.(object1)["name"])
		}
		if out["kind"] != "Table" || fmt.Sprint(columns) != want || out["rows"].([]any)[0].(object1)["cells"].([]any)[0] != "x" {
			t.Errorf("the table of %s: %v", cluster, out)
		}
	}
	for path, accept := range map[string]string{"/x": metadata, "": list} {
		code, out := w.accept(t, http.MethodGet, "aa"+widgetsIn+path, accept, "", "")
		if code != http.StatusOK || !strings.HasPrefix(out["kind"].(string), "PartialObjectMetadata") || strings.Contains(fmt.Sprint(out), "color:red") {
			t.Errorf("metadata of %q: %d %v", path, code, out)
		}
	}
	const binary = "application/vnd.kubernetes.protobuf"
	if code, _ := w.accept(t, http.MethodGet, "aa"+widgetsIn, binary, "", ""); code != http.StatusNotAcceptable {
		t.Errorf("a list in protobuf: %d", code)
	}
	for _, accept := range []string{binary + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", binary + ",application/json"} {
		if code, out := w.accept(t, http.MethodGet, "aa"+widgetsIn, accept, "", ""); code != http.StatusOK {
			t.Errorf("%s: %d %v", accept, code, out)
		}
	}
}
