package apiextensions

import (
	"bytes"
	"fmt"
	"reflect"
	goruntime "runtime"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"pgregory.net/rapid"
)

// stored are definitions as etcd has them.
type stored struct {
	scheme *runtime.Scheme
	codec  *protobuf.Serializer
}

func newStored(t testing.TB) stored {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := definitions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return stored{scheme, protobuf.NewSerializer(scheme, scheme)}
}

func (s stored) encode(t interface{ Fatal(...any) }, d definition) []byte {
	var out bytes.Buffer
	d.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := s.codec.Encode(d, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// decode decodes a definition in the usual way.
func (s stored) decode(data []byte) (definition, error) {
	obj, _, err := s.codec.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	s.scheme.Default(obj)
	return obj.(definition), nil
}

// read decodes one as the watch cache does.
func (s stored) read(data []byte) (definition, error) {
	rest, complete := find(data)
	d, err := s.decode(rest)
	if err == nil {
		complete(d)
	}
	return d, err
}

func anyDefinition(t *rapid.T) definition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: rapid.StringN(0, 9, -1).Draw(t, "name"), ResourceVersion: rapid.StringN(0, 3, -1).Draw(t, "resource version"), Generation: rapid.Int64().Draw(t, "generation"),
	}}
	d.Spec.Names.Kind = rapid.SampledFrom([]string{"", "Widget", "Gadget"}).Draw(t, "kind")
	for n := range rapid.IntRange(0, maxVersions+1).Draw(t, "versions") {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: fmt.Sprintf("v%d", n), Storage: rapid.Bool().Draw(t, "stored")}
		if rapid.Bool().Draw(t, "with a schema") {
			v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Description: rapid.SampledFrom([]string{"", "one", "another"}).Draw(t, "schema"),
			}}
		}
		d.Spec.Versions = append(d.Spec.Versions, v)
	}
	if rapid.Bool().Draw(t, "stored versions") {
		d.Status.StoredVersions = []string{"v0"}
	}
	return d
}

// However many definitions have been decoded before, and whatever bytes come, each is what its bytes say.
func TestADefinitionWhoseSpecIsKnownIsWhatItsBytesSay(t *testing.T) {
	s := newStored(t)
	rapid.Check(t, func(t *rapid.T) {
		var inUse []definition
		for range rapid.IntRange(1, 6).Draw(t, "definitions") {
			data := s.encode(t, anyDefinition(t))
			for range rapid.IntRange(0, 3).Draw(t, "faults") {
				at := rapid.IntRange(len(protobufHead), len(data)-1).Draw(t, "at")
				data[at] = rapid.Byte().Draw(t, "byte")
			}
			want, wantErr := s.decode(bytes.Clone(data))
			got, err := s.read(data)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("decoded with %v, want %v", err, wantErr)
			}
			if err != nil {
				continue
			}
			if inUse = append(inUse, got); !reflect.DeepEqual(got, want) {
				t.Fatalf("decoded as\n%v\nwant\n%v", got, want)
			}
		}
		goruntime.KeepAlive(inUse)
	})
}

func TestAKnownSpecIsNotDecodedAgain(t *testing.T) {
	s := newStored(t)
	data := s.encode(t, large(t))
	first, err := s.read(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.read(data)
	if err != nil || again.Spec.Versions[0].Schema != first.Spec.Versions[0].Schema {
		t.Fatalf("the spec is not shared: %v", err)
	}
	whole := testing.AllocsPerRun(3, func() {
		if _, err := s.decode(data); err != nil {
			t.Error(err)
		}
	})
	known := testing.AllocsPerRun(10, func() {
		if _, err := s.read(data); err != nil {
			t.Error(err)
		}
	})
	if known > whole/10 {
		t.Errorf("a definition whose spec is known takes %v allocations, and %v without that", known, whole)
	}
	goruntime.KeepAlive(first)
}

// BenchmarkDecode is what a definition costs a replica that starts.
func BenchmarkDecode(b *testing.B) {
	s := newStored(b)
	data := s.encode(b, large(b))
	first, err := s.read(data)
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func() (definition, error){
		"unknown": func() (definition, error) {
			d, err := s.decode(data)
			share(d)
			return d, err
		},
		"known": func() (definition, error) { return s.read(data) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	goruntime.KeepAlive(first)
}
