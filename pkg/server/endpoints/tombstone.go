package endpoints

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

// tombstoneAt returns what is stored at a key of a bundle in place of a built-in object that was deleted there.
func tombstoneAt(b clusters.BuiltIn, key string) (storage.Stored, error) {
	for is, objects := range builtInObjects(b) {
		for _, of := range objects {
			if path.Join(is.keys, of.GetNamespace(), of.GetName()) != key {
				continue
			}
			last, err := json.Marshal(of)
			if err != nil {
				return storage.Stored{}, apierrors.NewInternalError(fmt.Errorf("what %s was: %w", key, err))
			}
			out := metav1.PartialObjectMetadata{TypeMeta: is.TypeMeta, ObjectMeta: metav1.ObjectMeta{
				Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID(), CreationTimestamp: of.GetCreationTimestamp(),
				Annotations: map[string]string{logicalcluster.AnnotationKey: logicalcluster.From(of).String()},
			}}
			clusters.SetTombstone(&out, string(last))
			return stored(key, out)
		}
	}
	return storage.Stored{}, apierrors.NewBadRequest(key + " is deleted, and is nothing that every workspace has")
}

// builtInKind says where objects are in bundles, and what they are.
type builtInKind struct {
	keys string
	metav1.TypeMeta
}

func builtInObjects(b clusters.BuiltIn) map[builtInKind][]metav1.Object {
	core, rbac := corev1.SchemeGroupVersion.String(), rbacv1.SchemeGroupVersion.String()
	return map[builtInKind][]metav1.Object{
		{"core/namespaces", metav1.TypeMeta{Kind: "Namespace", APIVersion: core}}:                                  asObjects(b.Namespaces()),
		{"core/serviceaccounts", metav1.TypeMeta{Kind: "ServiceAccount", APIVersion: core}}:                        asObjects(b.ServiceAccounts()),
		{"core/configmaps", metav1.TypeMeta{Kind: "ConfigMap", APIVersion: core}}:                                  asObjects(b.ConfigMaps()),
		{rbacv1.GroupName + "/clusterrolebindings", metav1.TypeMeta{Kind: "ClusterRoleBinding", APIVersion: rbac}}: asObjects(b.ClusterRoleBindings()),
	}
}

func asObjects[T metav1.Object](some []T) (all []metav1.Object) {
	for _, one := range some {
		all = append(all, one)
	}
	return all
}
