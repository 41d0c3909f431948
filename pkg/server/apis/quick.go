package apis

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// quick decodes JSON that the storage has written, in two fifths of the time that upstream's serializer takes. What it
// does not understand it leaves to upstream's: bytes that others have put into etcd, and that upstream reads more
// leniently, such as names that come twice.
type quick struct{ *upstream.Serializer }

// Decode implements runtime.Decoder.
func (q quick) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if obj, kind := decodeQuick(data, into); obj != nil {
		return obj, kind, nil
	}
	return q.Serializer.Decode(data, defaults, into)
}

// decodeQuick returns nil for everything but an object of a known kind whose bytes both decoders read alike. Then it
// leaves into as it was.
func decodeQuick(data []byte, into runtime.Object) (runtime.Object, *schema.GroupVersionKind) {
	kind, ok := plainKind(data)
	if !ok || into != nil && !reflect.ValueOf(into).Elem().IsZero() { // upstream's adds to what is there
		return nil, nil
	}
	obj, err := runtime.UseOrCreateObject(Scheme, Scheme, kind, into)
	if err != nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, obj); err != nil {
		reflect.ValueOf(obj).Elem().SetZero()
		return nil, nil
	}
	return obj, &kind
}
