package clusters

import (
	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Key identifies one object of a resource in the whole shard. Namespace and name alone do not, because every logical
// cluster may use the same ones.
type Key struct {
	Cluster logicalcluster.Name
	// Namespace is empty for objects without one.
	Namespace string
	Name      string
}

// KeyOf returns obj's key. The cluster comes from the annotation kcp.io/cluster, which storage writes. It is empty for
// an object that did not come from a shard.
func KeyOf(obj metav1.Object) Key {
	if o, ok := obj.(*CustomObject); ok {
		return CustomKey(logicalcluster.From(o), o.GroupKind(), o.Namespace, o.Name)
	}
	return Key{Cluster: logicalcluster.From(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// String returns "cluster|namespace/name", or "cluster|name" without a namespace. Different keys have different
// strings, if their names are valid. So it may be used as the value of an index.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Cluster.String() + "|" + k.Name
	}
	return k.Cluster.String() + "|" + k.Namespace + "/" + k.Name
}
