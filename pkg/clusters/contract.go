package clusters

import (
	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BoundSchemas is the logical cluster with the APIResourceSchemas that APIBindings of this shard use: for each of them
// one copy, however many use it. So a binding serves on when its export, its schema, or their logical cluster goes, and
// when the shard that has these is down.
const BoundSchemas logicalcluster.Name = "system:bound-schemas"

// ExportClusterAnnotation names the logical cluster of an APIBinding's export. Admission writes it when the binding is
// made, and decides by it who may bind. So the path in the binding is resolved once: whoever gets that path later gets
// no binding with it.
const ExportClusterAnnotation = "internal.apis.kcp.io/export-cluster"

// ExportShardAnnotation names the shard of the logical cluster of an APIBinding's export, if that is another one than
// the binding's. Admission writes it with ExportClusterAnnotation.
const ExportShardAnnotation = "internal.apis.kcp.io/export-shard"

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

// ForeignUID returns the uid by which this shard tells an object of another shard from its own ones and from those of
// all others: a shard that lies may show any uid.
func ForeignUID(shard string, uid types.UID) types.UID {
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte("shard/"+shard+"/"+string(uid))).String())
}

// The finalizers of the shard's own controllers. Only they remove them.
const (
	// WorkspaceFinalizer keeps a Workspace until its logical cluster has gone.
	WorkspaceFinalizer = corev1alpha1.LogicalClusterFinalizerName
	// ContentFinalizer keeps a LogicalCluster until the content of its cluster has gone.
	ContentFinalizer = "regent.dev/content"
)

// Identities of service accounts, which one logical cluster has.
const (
	// IdentityClusterExtra is the extra of a user that names the logical cluster whose service account it is. It is
	// kcp's.
	IdentityClusterExtra = "authentication.kcp.io/cluster-name"
	// IdentityGroupPrefix begins the groups that a service account has in all clusters but its own:
	// <prefix><cluster> for all accounts of a cluster, and <prefix><cluster>:<namespace>:<name> for one.
	IdentityGroupPrefix = "system:cluster:"
)

// BuiltInVersion is the resourceVersion of objects that every logical cluster has, though none is stored. No stored
// object has it: the first write to an etcd makes version 2.
const BuiltInVersion = "1"

// IsBuiltIn reports whether an object is built in: it can be read, and neither changed nor deleted.
func IsBuiltIn(obj metav1.Object) bool { return obj.GetResourceVersion() == BuiltInVersion }
