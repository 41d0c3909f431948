package clusters

import (
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
)

// BoundSchemas is the logical cluster with the APIResourceSchemas that APIBindings of this shard use: for each of them
// one copy, however many use it. So a binding serves on when its export, its schema, or their logical cluster goes.
const BoundSchemas logicalcluster.Name = "system:bound-schemas"

// ExportClusterAnnotation names the logical cluster of an APIBinding's export. Admission writes it when the binding is
// made, and decides by it who may bind. So the path in the binding is resolved once: whoever gets that path later gets
// no binding with it.
const ExportClusterAnnotation = "internal.apis.kcp.io/export-cluster"

// BindingFinalizer keeps an APIBinding until the objects of what it binds are deleted. It is kcp's.
const BindingFinalizer = "apis.kcp.io/apibinding-finalizer"

// BoundSchemaKey returns the key of the copy of the schema that a binding uses.
func BoundSchemaKey(of *apisv1alpha2.BoundAPIResource) Key {
	return BoundSchemaKeyOf(of.Schema.UID, of.Resource, of.Group)
}

// BoundSchemaKeyOf returns the key of the copy of a schema with a uid and with the names of what it describes.
func BoundSchemaKeyOf(uid, plural, group string) Key {
	return Key{Cluster: BoundSchemas, Name: "u" + uid + "." + plural + "." + group}
}
