package clusters

import (
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CustomObjects stands for custom objects of all kinds, where a resource is asked for.
var CustomObjects = schema.GroupVersionResource{Group: "regent.dev", Version: "v1", Resource: "customobjects"}

// CustomObject is the metadata of a custom object, with its kind. One informer has those of all kinds, so the kind is a
// part of the key: see CustomKey.
type CustomObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

// GroupKind returns the object's kind.
func (o *CustomObject) GroupKind() schema.GroupKind { return o.GroupVersionKind().GroupKind() }

// GetObjectKind implements runtime.Object.
func (o *CustomObject) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// DeepCopyObject implements runtime.Object.
func (o *CustomObject) DeepCopyObject() runtime.Object {
	out := &CustomObject{TypeMeta: o.TypeMeta}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// CustomKey returns the key of a custom object in an informer of all kinds: its name is "<Kind>.<group>/<name>", which
// no name is like.
func CustomKey(cluster logicalcluster.Name, kind schema.GroupKind, namespace, name string) Key {
	return Key{Cluster: cluster, Namespace: namespace, Name: kind.String() + "/" + name}
}

// CustomKind returns the kind that a key of a custom object has, and an empty one for other keys.
func (k Key) CustomKind() schema.GroupKind {
	if end := strings.IndexByte(k.Name, '/'); end >= 0 {
		return schema.ParseGroupKind(k.Name[:end])
	}
	return schema.GroupKind{}
}

// ObjectName returns the name of the object that a key is of: what is behind the kind, if there is one.
func (k Key) ObjectName() string {
	return k.Name[strings.IndexByte(k.Name, '/')+1:]
}

var _ Object = (*CustomObject)(nil)
