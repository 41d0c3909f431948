package custom

import (
	"fmt"
	"unsafe"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
)

// Prefix begins the keys of all custom objects: /custom/<cluster>/<group>/<Kind>/[<namespace>/]<name>. The key has the
// kind, which an object says of itself, and which no definition may change once it is established.
const Prefix = "/custom"

// Resource is the name under which all custom objects are stored, in metrics and in an EncryptionConfiguration.
var Resource = clusters.CustomObjects.GroupResource()

// collection returns the key, without the cluster, that begins the keys of a kind's objects.
func collection(kind schema.GroupKind) string { return Prefix + "/" + kind.Group + "/" + kind.Kind }

// keyOf returns an object's key without the cluster.
func keyOf(obj runtime.Object) (string, error) {
	o, ok := obj.(*object)
	if !ok {
		return "", fmt.Errorf("a %T is no custom object", obj)
	}
	key := collection(o.GroupVersionKind().GroupKind())
	if o.Namespace != "" {
		key += "/" + o.Namespace
	}
	return key + "/" + o.Name, nil
}

// The fields that the watch cache keeps of an object. Users cannot select by the last two: a request may name
// metadata.name, metadata.namespace, and what a definition makes selectable.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	fieldKind      = "regent.dev/kind"
	fieldBytes     = "regent.dev/bytes"
)

// attributes returns what the watch cache selects objects by. The cache knows no definitions, and does not have the
// object before a change when it looks at one, only these attributes of it. So they have the object's bytes, for
// selectors that look into them.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := obj.(*object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no custom object", obj)
	}
	set := fields.Set{fieldName: o.Name, fieldKind: collection(o.GroupVersionKind().GroupKind())}
	if o.Namespace != "" {
		set[fieldNamespace] = o.Namespace
	}
	if o.body != nil && len(o.body.raw) > 0 {
		// Shared, because a copy would be as large as the object. Nobody modifies the bytes of a body.
		set[fieldBytes] = unsafe.String(&o.body.raw[0], len(o.body.raw))
	}
	return o.Labels, set, nil
}
