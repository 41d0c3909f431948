package clusters

import (
	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Key names one object of one resource in the whole shard. Namespace and name alone do not: every logical cluster may
// use the same ones.
type Key struct {
	Cluster logicalcluster.Name
	// Namespace is empty for objects without one.
	Namespace string
	Name      string
}

// KeyOf returns obj's key. Its cluster is what the storage wrote into the annotation kcp.io/cluster, and empty for an
// object that did not come from a shard.
func KeyOf(obj metav1.Object) Key {
	return Key{Cluster: logicalcluster.From(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// String is "cluster|namespace/name", or "cluster|name" without a namespace. It is one-to-one for valid names, so it
// may serve as the value of an index.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Cluster.String() + "|" + k.Name
	}
	return k.Cluster.String() + "|" + k.Namespace + "/" + k.Name
}
