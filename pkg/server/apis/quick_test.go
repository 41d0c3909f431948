package apis

import (
	stdjson "encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// storedAsJSON calls do with each resource whose objects are stored as JSON, and with its serializer.
func storedAsJSON(t *testing.T, do func(resource.Described, schema.GroupVersionKind, quick)) {
	t.Helper()
	found := 0
	for _, d := range described() {
		encoding := d.Encoding(storedCodecs{Codecs})
		if encoding.MediaType != runtime.ContentTypeJSON {
			continue
		}
		info, _ := runtime.SerializerInfoForMediaType(encoding.Serializer.SupportedMediaTypes(), encoding.MediaType)
		serializer, ok := info.Serializer.(quick)
		if !ok {
			t.Fatalf("%v is decoded by a %T", d.Resource().GVR, info.Serializer)
		}
		found++
		do(d, encoding.Version.WithKind(d.Resource().Kind), serializer)
	}
	if found == 0 {
		t.Fatal("nothing is stored as JSON")
	}
}

func TestWhatIsStoredAsJSONIsDecodedQuicklyAndAsUpstreamDoes(t *testing.T) {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), Codecs)
	storedAsJSON(t, func(d resource.Described, kind schema.GroupVersionKind, serializer quick) {
		for range 50 {
			obj, err := Scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			fill.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			data, err := runtime.Encode(serializer, obj)
			if err != nil {
				t.Fatalf("%v: %v", kind, err)
			}
			into, _ := Scheme.New(kind)
			got, gotKind := decodeQuick(data, into)
			if got == nil {
				t.Fatalf("%v is left to upstream: %s", kind, data)
			}
			want, wantKind, err := serializer.Serializer.Decode(data, nil, nil)
			if err != nil || got != into || !reflect.DeepEqual(got, want) || *gotKind != *wantKind {
				t.Fatalf("%s\nis %#v, %v\nupstream: %#v, %v, %v", data, got, gotKind, want, wantKind, err)
			}
		}
	})
}

// Both decoders take a number that has no type for another one.
func TestWhatIsStoredAsJSONHasTypes(t *testing.T) {
	own := reflect.TypeFor[stdjson.Unmarshaler]()
	var walk func(of reflect.Type, path string, seen map[reflect.Type]bool)
	walk = func(of reflect.Type, path string, seen map[reflect.Type]bool) {
		if seen[of] || reflect.PointerTo(of).Implements(own) {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Interface:
			t.Errorf("%s has any type", path)
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(of.Elem(), path, seen)
		case reflect.Struct:
			for i := range of.NumField() {
				if field := of.Field(i); field.Tag.Get("json") != "-" {
					walk(field.Type, path+"."+field.Name, seen)
				}
			}
		}
	}
	storedAsJSON(t, func(_ resource.Described, kind schema.GroupVersionKind, _ quick) {
		obj, err := Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		walk(reflect.TypeOf(obj).Elem(), kind.Kind, map[reflect.Type]bool{})
	})
}

// Whatever somebody has put into etcd, it is read as upstream reads it.
func FuzzWhatIsStoredAsJSON(f *testing.F) {
	for _, fields := range []string{
		``, `,"metadata":null`, `,"metadata":{"name":"a","name":"b"}`, `,"metadata":{"Name":"a"}`, `,"metadata":{"labels":{"a":null,"b":""}}`,
		`,"metadata":{"labels":{}},"metadata":{"annotations":{}}`, `,"metadata":{"finalizers":[null,"a"]}`, `,"metadata":{"finalizers":[]}`,
		`,"metadata":{"generation":1.0}`, `,"metadata":{"generation":1e2}`, `,"metadata":{"generation":9223372036854775808}`, `,"metadata":{"generation":"1"}`,
		`,"metadata":{"creationTimestamp":null}`, `,"metadata":{"creationTimestamp":"2026-02-30T00:00:00Z"}`, `,"metadata":{"creationTimestamp":"2026-01-01T00:00:00+02:00"}`,
		`,"metadata":{"name":"\ud800"}`, `,"metadata":{"name":"` + "\xff" + `"}`, `,"metadata":{"name":"\u0000\n"}`, `,"unknown":[[[{}]]]`, `,"spec":{}`, `,"spec":null`, `,"spec":[]`,
		`,"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}`, `,"metadata":{"managedFields":[{"fieldsV1":1}]}`, `,"metadata":{"ownerReferences":[{"controller":true}]}`,
		`,"status":{"conditions":[{"lastTransitionTime":""}]}`, `,"kind":"Other"`, `,"apiVersion":"v1"`, ` , "spec" : { } `, `,"spec":{}}{`, `,"spec":`,
	} {
		for _, begin := range []string{`{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1"`, `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1"`} {
			f.Add([]byte(begin + fields + `}`))
		}
	}
	f.Add([]byte(`{"kind":"Secret","apiVersion":"v1","data":{"a":"YQ==\n"}}`))
	f.Add([]byte(`{"kind":"Workspace","apiVersion":"unknown/v1"}`))
	f.Add([]byte(`{"kind":"","apiVersion":"v1"}`))
	info, _ := runtime.SerializerInfoForMediaType(storedCodecs{Codecs}.SupportedMediaTypes(), runtime.ContentTypeJSON)
	serializer := info.Serializer.(quick)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, kind := decodeQuick(data, nil)
		if got == nil {
			return
		}
		want, wantKind, err := serializer.Serializer.Decode(data, nil, nil)
		if err != nil || *kind != *wantKind || !reflect.DeepEqual(got, want) {
			t.Errorf("%q\nis %#v\nupstream: %#v, %v", data, got, want, err)
		}
	})
}

// An object that has something in it gets more, and one that could not be decoded has nothing of it.
func TestUpstreamDecodesWhatTheQuickDecoderDoesNot(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "Workspace"}
	info, _ := runtime.SerializerInfoForMediaType(storedCodecs{Codecs}.SupportedMediaTypes(), runtime.ContentTypeJSON)
	for name, c := range map[string]struct{ before, data string }{
		"adds to what is there":      {`{"metadata":{"labels":{"a":"b"}}}`, `{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"labels":{"c":"d"}}}`},
		"takes a name that is twice": {`{}`, `{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"labels":{"a":"b"},"labels":{"c":"d"}}}`},
		"refuses":                    {`{}`, `{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"labels":{"a":"b"},"generation":"x"}}`},
		"knows the kind":             {`{}`, `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1","metadata":{"name":"cluster"}}`},
		"finds the kind":             {`{}`, `{"metadata":{"name":"a"},"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var objs [2]runtime.Object
			var errs [2]error
			for i, decoder := range []runtime.Decoder{info.Serializer, info.Serializer.(quick).Serializer} {
				into, err := Scheme.New(kind)
				if err == nil {
					err = stdjson.Unmarshal([]byte(c.before), into)
				}
				if err != nil {
					t.Fatal(err)
				}
				objs[i], _, errs[i] = decoder.Decode([]byte(c.data), nil, into)
			}
			if !reflect.DeepEqual(objs[0], objs[1]) || (errs[0] == nil) != (errs[1] == nil) {
				t.Errorf("%#v, %v\nupstream: %#v, %v", objs[0], errs[0], objs[1], errs[1])
			}
		})
	}
}
