package apis

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

func TestAKindIsFoundWithoutParsing(t *testing.T) {
	for data, plain := range map[string]bool{
		`{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"name":"a"}}`: true,
		`{"kind":"ConfigMap","apiVersion":"v1"}`:                                              true,
		`{"kind":"","apiVersion":"v1"}`:                                                       true,
		`{"kind":"A","apiVersion":"a/b/c"}`:                                                   true,
		`{"apiVersion":"v1","kind":"ConfigMap"}`:                                              false,
		`{ "kind": "ConfigMap", "apiVersion": "v1" }`:                                         false,
		`{"kind":"\u0041","apiVersion":"v1"}`:                                                 false,
		`{"kind":"A","metadata":{},"apiVersion":"v1"}`:                                        false,
		`{"kind":"A","apiVersion":"v1"`:                                                       false,
		`{"kind":"A`:                                                                          false,
		`{"kind":1}`:                                                                          false,
		`[]`:                                                                                  false,
		``:                                                                                    false,
	} {
		_, rest, found := leading([]byte(data), `{"kind":"`)
		if found {
			_, rest, found = leading(rest, `,"apiVersion":"`)
		}
		if found && len(rest) > 0 != plain {
			t.Errorf("%s is plain: %v", data, !plain)
		}
		got, err := leadingKind{}.Interpret([]byte(data))
		want, wantErr := json.DefaultMetaFactory.Interpret([]byte(data))
		if (err == nil) != (wantErr == nil) || err == nil && *got != *want {
			t.Errorf("%s: %v, %v; upstream: %v, %v", data, got, err, want, wantErr)
		}
	}
}

// The fast way is of use only if it is what the storage writes.
func TestWhatIsStoredBeginsWithItsKind(t *testing.T) {
	for _, d := range described() {
		encoding := d.Encoding(storedCodecs{Codecs})
		if encoding.MediaType != runtime.ContentTypeJSON {
			continue
		}
		info, ok := runtime.SerializerInfoForMediaType(encoding.Serializer.SupportedMediaTypes(), encoding.MediaType)
		if !ok {
			t.Fatalf("%v has no serializer of JSON", d.Resource().GVR)
		}
		obj, err := Scheme.New(encoding.Version.WithKind(d.Resource().Kind))
		if err != nil {
			t.Fatal(err)
		}
		data, err := runtime.Encode(encoding.Serializer.EncoderForVersion(info.Serializer, encoding.Version), obj)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := leading(data, `{"kind":"`); !ok {
			t.Errorf("%s", data)
		}
	}
}
