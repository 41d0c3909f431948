package custom

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

const raw = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"a":"b"},"managedFields":[{"manager":"m"}],"name":"x","namespace":"n","uid":"7"},"spec":{"z":1.50,"a":[1,2]}}`

func TestBytesAreStoredAsTheyAre(t *testing.T) {
	decoded, err := runtime.Decode(codec{}, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	again, err := runtime.Encode(codec{}, decoded.DeepCopyObject())
	if err != nil || string(again) != raw {
		t.Errorf("%v\n%s\n%s", err, again, raw)
	}
	o := decoded.(*object)
	if o.Name != "x" || o.Namespace != "n" || o.UID != "7" || o.ManagedFields != nil {
		t.Errorf("the metadata is %+v", o.ObjectMeta)
	}
	if key, err := keyOf(o); key != "/custom/example.com/Widget/n/x" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
}

// Storage writes the logical cluster into the annotations of what it stores. Nothing else of an object may change with
// that.
func TestAnAnnotationChangesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "x"},
			rapid.StringMatching(`[a-z]{1,5}x`).Draw(t, "field"): rapid.SampledFrom([]any{1.5, "<&>\u2028", nil, true, []any{"a"}, map[string]any{"b": 1e300}}).Draw(t, "value"),
		}
		before, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		o := &object{}
		if err := o.parse(before); err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{"kcp.io/cluster": "a"})
		marked, err := o.bytes()
		if err != nil {
			t.Fatal(err)
		}
		content["metadata"] = map[string]any{"name": "x", "annotations": map[string]any{"kcp.io/cluster": "a"}}
		want, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted any
		if json.Unmarshal(marked, &got) != nil || json.Unmarshal(want, &wanted) != nil {
			t.Fatalf("no JSON: %s", marked)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(wanted)
		if !bytes.Equal(a, b) {
			t.Errorf("%s, want %s", a, b)
		}
	})
}

func TestGarbageIsNoObject(t *testing.T) {
	for _, garbage := range []string{"", "[]", `{"metadata":3}`, "k8s\x00"} {
		if _, err := runtime.Decode(codec{}, []byte(garbage)); err == nil {
			t.Errorf("%q was decoded", garbage)
		}
	}
}

// Whatever other fields an object has, in whatever case: what storage knows of it is what everybody reads (I18).
func TestNamesAreToldApartByCaseI18(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{
			"name": "x", "namespace": "n", "labels": map[string]any{"a": "b"},
		}}
		add := func(to map[string]any, names []string, values []any) {
			for range rapid.IntRange(0, 4).Draw(t, "fields") {
				name := rapid.SampledFrom(names).Draw(t, "name")
				if _, real := to[name]; !real {
					to[name] = rapid.SampledFrom(values).Draw(t, "value")
				}
			}
		}
		hostile := []any{"..", "Forged", map[string]any{"namespace": "..", "name": "y", "finalizers": []any{"a/b"}, "labels": map[string]any{"forged": "yes"}}, nil, 7, []any{}}
		add(content, []string{"Kind", "KIND", "\u212aind", "\u212aIND", "Metadata", "METADATA", "metaData", "ApiVersion", "apiversion", "APIVERSION", "Spec"}, hostile)
		add(content["metadata"].(map[string]any), []string{"Name", "NAME", "Namespace", "name\u017fpace", "Labels", "label\u017f", "Finalizers", "DeletionTimestamp", "UID", "Uid"}, hostile)
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		o := &object{}
		if err := o.parse(raw); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if key, err := keyOf(o); err != nil || key != "/custom/example.com/Widget/n/x" || len(o.Labels) != 1 || o.Finalizers != nil || o.DeletionTimestamp != nil || o.UID != "" {
			t.Errorf("%s is at %q with %+v, %v", raw, key, o.ObjectMeta, err)
		}
	})
}
