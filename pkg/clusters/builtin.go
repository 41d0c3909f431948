package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// BuiltInAnnotation is on the LogicalCluster of a logical cluster that has built-in objects: its namespaces, their
// service accounts, the ConfigMaps with the authorities, and the binding of its creator. They are served as if they
// were stored, and are stored once somebody changes them. The value is that of BuiltInValue. Only the server writes it,
// and it never changes.
const BuiltInAnnotation = "internal.regent.dev/built-in"

// tombstoneAnnotation is on what is stored in place of a built-in object that was deleted. The value is what it was, in
// JSON.
const tombstoneAnnotation = "internal.regent.dev/tombstone"

// The names of objects that every logical cluster has. They are Kubernetes' and kcp's.
const (
	DefaultServiceAccount = "default"
	// RootCAConfigMap has the authorities by which clients know the API, in PEM, as RootCAKey.
	RootCAConfigMap = "kube-root-ca.crt"
	RootCAKey       = "ca.crt"
	// CreatorBinding binds who has created a cluster's workspace to CreatorRole, which may do everything in it.
	CreatorBinding = "workspace-admin"
	CreatorRole    = "cluster-admin"
)

// Namespaces are those that every logical cluster has while it exists.
var Namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

// BuiltIn is what the built-in objects of a logical cluster follow from.
type BuiltIn struct {
	LogicalCluster *corev1alpha1.LogicalCluster
	// RootCA has the authorities by which clients know the API, in PEM. Empty: namespaces have neither the
	// ConfigMap nor the service account.
	RootCA string
}

// MayBeBuiltIn reports whether some built-in object has the name. It is quick.
func MayBeBuiltIn(name string) bool {
	return name == DefaultServiceAccount || name == RootCAConfigMap || name == CreatorBinding || slices.Contains(Namespaces, name)
}

// BuiltInValue returns the value of BuiltInAnnotation. The revision is one that etcd has had right before the
// LogicalCluster is made, and is the resourceVersion of its built-in objects. Of the authorities it has a hash.
func BuiltInValue(revision int64, rootCA string) string {
	return strconv.FormatInt(revision, 10) + "." + hash(rootCA)
}

// hash is called for each logical cluster when a term begins, always with the same text.
func hash(rootCA string) string {
	if last := lastHash.Load(); last != nil && last.of == rootCA {
		return last.hash
	}
	sum := sha256.Sum256([]byte(rootCA))
	out := hex.EncodeToString(sum[:4])
	lastHash.Store(&digest{rootCA, out})
	return out
}

type digest struct{ of, hash string }

var lastHash atomic.Pointer[digest]

// IsOutdated reports whether the authorities are others than when the logical cluster was made. Whoever watches the
// built-in ConfigMaps has not heard of that.
func (b BuiltIn) IsOutdated() bool {
	_, of, _ := strings.Cut(b.LogicalCluster.Annotations[BuiltInAnnotation], ".")
	return of != hash(b.RootCA)
}

// HasBuiltIn reports whether a logical cluster has built-in objects. Others have stored ones only.
func HasBuiltIn(lc *corev1alpha1.LogicalCluster) bool { return lc.Annotations[BuiltInAnnotation] != "" }

// Namespaces returns the built-in namespaces.
func (b BuiltIn) Namespaces() (out []*corev1.Namespace) {
	for _, name := range b.namespaces() {
		meta := b.meta(corev1.Resource("namespaces"), "", name)
		meta.Labels = map[string]string{corev1.LabelMetadataName: name}
		meta.ManagedFields = b.managed("logicalcluster", "v1", `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`)
		out = append(out, &corev1.Namespace{
			ObjectMeta: meta,
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	return out
}

// ServiceAccounts returns the built-in service accounts.
func (b BuiltIn) ServiceAccounts() (out []*corev1.ServiceAccount) {
	if b.RootCA == "" {
		return nil
	}
	for _, namespace := range b.namespaces() {
		out = append(out, &corev1.ServiceAccount{ObjectMeta: b.meta(corev1.Resource("serviceaccounts"), namespace, DefaultServiceAccount)})
	}
	return out
}

// ConfigMaps returns the built-in ConfigMaps.
func (b BuiltIn) ConfigMaps() (out []*corev1.ConfigMap) {
	if b.RootCA == "" {
		return nil
	}
	for _, namespace := range b.namespaces() {
		meta := b.meta(corev1.Resource("configmaps"), namespace, RootCAConfigMap)
		meta.ManagedFields = b.managed("serviceaccount", "v1", `{"f:data":{".":{},"f:ca.crt":{}}}`)
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{RootCAKey: b.RootCA}})
	}
	return out
}

// ClusterRoleBindings returns the built-in binding of the creator, if one is recorded.
func (b BuiltIn) ClusterRoleBindings() []*rbacv1.ClusterRoleBinding {
	if b.LogicalCluster == nil || !HasBuiltIn(b.LogicalCluster) {
		return nil
	}
	binding, err := CreatorBindingOf(b.LogicalCluster)
	if err != nil || binding == nil {
		return nil
	}
	binding.ObjectMeta = b.meta(rbacv1.Resource("clusterrolebindings"), "", CreatorBinding)
	binding.ManagedFields = b.managed("logicalcluster", "rbac.authorization.k8s.io/v1", `{"f:roleRef":{},"f:subjects":{}}`)
	return []*rbacv1.ClusterRoleBinding{binding}
}

// CreatorBindingOf returns the binding of a logical cluster's creator, with no metadata but its name. Nil: no creator
// is recorded.
func CreatorBindingOf(lc *corev1alpha1.LogicalCluster) (*rbacv1.ClusterRoleBinding, error) {
	owner := lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]
	if owner == "" {
		return nil, nil
	}
	creator, err := CreatorOf(owner)
	if err != nil {
		return nil, err
	}
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: CreatorBinding},
		Subjects:   []rbacv1.Subject{creator},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: CreatorRole},
	}, nil
}

func (b BuiltIn) namespaces() []string {
	if b.LogicalCluster == nil || !HasBuiltIn(b.LogicalCluster) {
		return nil
	}
	return Namespaces
}

func (b BuiltIn) meta(resource schema.GroupResource, namespace, name string) metav1.ObjectMeta {
	lc := b.LogicalCluster
	version, _, _ := strings.Cut(lc.Annotations[BuiltInAnnotation], ".")
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		UID:               BuiltInUID(lc.UID, resource, namespace, name),
		ResourceVersion:   version,
		CreationTimestamp: lc.CreationTimestamp,
		Annotations:       map[string]string{logicalcluster.AnnotationKey: logicalcluster.From(lc).String()},
	}
}

func (b BuiltIn) managed(manager, version, fields string) []metav1.ManagedFieldsEntry {
	created := b.LogicalCluster.CreationTimestamp
	return []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, Time: &created,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
}

// BuiltInUID returns the uid of a built-in object of the logical cluster whose LogicalCluster has the uid. It stays
// when the object is stored.
func BuiltInUID(cluster types.UID, resource schema.GroupResource, namespace, name string) types.UID {
	of := strings.Join([]string{string(cluster), resource.String(), namespace, name}, "/")
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(of)).String())
}

// IsTombstone reports whether an object is only the record that a built-in one was deleted. Informers show it. Nobody
// else sees it.
func IsTombstone(obj metav1.Object) bool { return LastOf(obj) != "" }

// LastOf returns what the built-in object was, in JSON, of which an object is the tombstone.
func LastOf(tombstone metav1.Object) string { return tombstone.GetAnnotations()[tombstoneAnnotation] }

// SetTombstone makes a tombstone of an object that is left without labels, owners and fields. last is what it was, in
// JSON. With nothing as last, it makes an object that is no tombstone.
func SetTombstone(obj metav1.Object, last string) {
	if last == LastOf(obj) {
		return
	}
	annotations := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		annotations[k] = v
	}
	if last != "" {
		annotations[tombstoneAnnotation] = last
	} else {
		delete(annotations, tombstoneAnnotation)
	}
	obj.SetAnnotations(annotations)
}
