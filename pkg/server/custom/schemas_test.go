package custom

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"
)

// Whatever schema a definition has that the API accepts, and whatever an object of it is like: the replica answers each
// request, says what is wrong with the object if it refuses it, and gives back what it has stored. Applying what is
// stored changes nothing.
func TestNoSchemaCrashesAReplica(t *testing.T) {
	w := newWorld(t)
	accepted, refused, n := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		d := widgets("")
		spec := schemas(3).Draw(rt, "schema")
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = parseSchema(rt, spec)
		d.Spec.Versions[0].SelectableFields = nil
		if faultsOf(t.Context(), d) != nil {
			refused++
			return
		}
		accepted++
		cluster := fmt.Sprintf("c%d", n)
		w.define(t, logicalcluster.Name(cluster), d)
		path := cluster + widgetsIn
		for i := range 3 {
			body, err := json.Marshal(map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": fmt.Sprint("x", i)}, "spec": values(spec).Draw(rt, "object"),
			})
			if err != nil {
				rt.Fatal(err)
			}
			code, made := w.do(t, http.MethodPost, path, "application/json", string(body))
			switch code {
			case http.StatusCreated:
			case http.StatusUnprocessableEntity, http.StatusBadRequest:
				if text := fmt.Sprint(made["message"]); !strings.Contains(text, "spec") {
					rt.Errorf("%s is refused without why: %s", body, text)
				}
				continue
			default:
				rt.Fatalf("POST %s: %d %v", body, code, made)
			}
			name := path + fmt.Sprint("/x", i)
			got := w.get(t, name)
			if !reflect.DeepEqual(got, made) {
				rt.Errorf("stored %v, got %v", made, got)
			}
			again := w.applied(t, name, got)
			switch code, out := w.do(t, http.MethodPatch, name+"?fieldManager=me&force=true", "application/apply-patch+yaml", again); {
			case code == http.StatusOK && reflect.DeepEqual(out["spec"], got["spec"]):
			case code == http.StatusOK:
				rt.Errorf("apply of %v made %v", got["spec"], out["spec"])
			// upstream cannot apply some of what can be posted, such as null in a set
			case !strings.Contains(fmt.Sprint(out["message"]), "spec"):
				rt.Errorf("apply %s: %d %v", again, code, out)
			}
		}
		if got := names(w.get(t, path)); len(got) > 3 {
			rt.Errorf("%v", got)
		}
		w.get(t, cluster+"/openapi/v3/apis/example.com/v1")
	})
	t.Logf("%d schemas were good, %d were not", accepted, refused)
	if accepted == 0 {
		t.Errorf("none of %d schemas was good", refused)
	}
}

// applied returns what is applied to make an object as it is.
func (w *world) applied(t *testing.T, name string, obj map[string]any) string {
	t.Helper()
	out := map[string]any{"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": map[string]any{"name": name[strings.LastIndex(name, "/")+1:]}}
	if spec, ok := obj["spec"]; ok {
		out["spec"] = spec
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func parseSchema(t *rapid.T, schema map[string]any) (out apiextensionsv1.JSONSchemaProps) {
	raw, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

// schemas are structural schemas, of which some are bad: defaults that do not fit, rules that do not compile.
func schemas(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		kinds := []string{"string", "integer", "number", "boolean", "any", "port"}
		if depth > 0 {
			kinds = append(kinds, "object", "object", "map", "list", "set", "keyed")
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		if depth == 3 {
			kind = rapid.SampledFrom([]string{"object", "object", "object", "any", "map"}).Draw(t, "kind of spec")
		}
		out := map[string]any{"type": kind}
		switch kind {
		case "string":
			sometimes(t, out, "maxLength", rapid.IntRange(0, 5))
			sometimes(t, out, "pattern", rapid.SampledFrom([]string{"^a", "[", "(a+)+$", ""}))
			sometimes(t, out, "enum", rapid.SliceOfN(rapid.StringMatching("[ab]{0,2}"), 0, 3))
			sometimes(t, out, "format", rapid.SampledFrom([]string{"date-time", "duration", "byte", "uuid", "nonsense"}))
		case "integer", "number":
			sometimes(t, out, "minimum", rapid.IntRange(-3, 3))
			sometimes(t, out, "multipleOf", rapid.SampledFrom([]float64{0.5, 2, 0, -1}))
			sometimes(t, out, "format", rapid.SampledFrom([]string{"int32", "int64", "float", "double"}))
		case "any":
			out = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
			if rapid.Bool().Draw(t, "an object of any fields") {
				out["type"] = "object"
			}
		case "port":
			out = map[string]any{"x-kubernetes-int-or-string": true}
		case "object":
			properties := map[string]any{}
			for _, name := range rapid.SliceOfNDistinct(fieldNames, 0, 3, rapid.ID[string]).Draw(t, "properties") {
				properties[name] = schemas(depth-1).Draw(t, name)
			}
			out["properties"] = properties
			sometimes(t, out, "required", rapid.SliceOfNDistinct(fieldNames, 0, 2, rapid.ID[string]))
			sometimes(t, out, "x-kubernetes-preserve-unknown-fields", rapid.Just(true))
			sometimes(t, out, "x-kubernetes-embedded-resource", rapid.Just(true))
		case "map":
			out["type"], out["additionalProperties"] = "object", schemas(depth-1).Draw(t, "values")
		case "list", "set":
			out["type"], out["items"] = "array", schemas(depth-1).Draw(t, "items")
			sometimes(t, out, "maxItems", rapid.IntRange(0, 3))
			if kind == "set" {
				out["x-kubernetes-list-type"] = "set"
			}
		case "keyed":
			item := schemas(0).Draw(t, "item")
			out["type"], out["x-kubernetes-list-type"], out["x-kubernetes-list-map-keys"] = "array", "map", []any{"a"}
			out["items"] = map[string]any{"type": "object", "required": []any{"a"}, "properties": map[string]any{"a": map[string]any{"type": "string"}, "b": item}}
		}
		sometimes(t, out, "nullable", rapid.Just(true))
		sometimes(t, out, "x-kubernetes-validations", rapid.Map(rapid.SampledFrom([]string{
			"true", "self == oldSelf", "has(self.a)", "size(self) < 3", "self.all(x, self.all(y, x == y))", "self.a.b > 1", "1/0 == 1", "self +", "oldSelf.hasValue() || true", "type(self) == string",
		}), func(rule string) any { return []any{map[string]any{"rule": rule, "message": "spec: no"}} }))
		if rapid.IntRange(0, 3).Draw(t, "a default") == 0 {
			out["default"] = values(out).Draw(t, "default")
		}
		return out
	})
}

// fieldNames are names of fields, of which some are odd.
var fieldNames = rapid.SampledFrom([]string{"a", "b", "metadata", "kind", "apiVersion", "x-y", "$ref", "self", "default", "a/b", "a.b", "ü"})

func sometimes[T any](t *rapid.T, into map[string]any, key string, value *rapid.Generator[T]) {
	if rapid.IntRange(0, 4).Draw(t, "with "+key) == 0 {
		into[key] = value.Draw(t, key)
	}
}

// values are JSON values that mostly fit a schema.
func values(schema map[string]any) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 9).Draw(t, "something else") == 0 {
			return anything(2).Draw(t, "else")
		}
		switch schema["type"] {
		case "string":
			return rapid.StringMatching("[ab]{0,4}").Draw(t, "string")
		case "integer":
			return rapid.Int64Range(-1<<53, 1<<53).Draw(t, "integer")
		case "number":
			return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
		case "boolean":
			return rapid.Bool().Draw(t, "bool")
		case "array":
			items, _ := schema["items"].(map[string]any)
			return rapid.SliceOfN(values(items), 0, 3).Draw(t, "items")
		case "object":
			out := map[string]any{}
			properties, _ := schema["properties"].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(properties)) {
				if rapid.IntRange(0, 4).Draw(t, "with "+name) > 0 {
					out[name] = values(properties[name].(map[string]any)).Draw(t, name)
				}
			}
			if of, ok := schema["additionalProperties"].(map[string]any); ok {
				for _, name := range rapid.SliceOfNDistinct(fieldNames, 0, 2, rapid.ID[string]).Draw(t, "keys") {
					out[name] = values(of).Draw(t, name)
				}
			}
			return out
		}
		return anything(1).Draw(t, "any")
	})
}

func anything(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth > 0 {
			kinds = 8
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "any") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int64().Draw(t, "integer")
		case 3:
			return rapid.Float64Range(-1e300, 1e300).Draw(t, "number")
		case 4:
			return rapid.StringOfN(rapid.RuneFrom(nil, unicode.Letter, unicode.Digit, unicode.Punct), 0, 5, 20).Draw(t, "string")
		case 5:
			return strings.Repeat("a", 40)
		case 6:
			return rapid.SliceOfN(anything(depth-1), 0, 3).Draw(t, "list")
		}
		return rapid.MapOfN(fieldNames, anything(depth-1), 0, 3).Draw(t, "map")
	})
}
