package admission

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func TestWhatCannotBeInAURLIsNotCreated(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "system:a": true, "a b": true, "": true, "a\x01b": false, "a\nb": false, "a\u0085": false} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		a := admission.NewAttributesRecord(role, nil, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, "", name,
			schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, "", admission.Create, &metav1.CreateOptions{}, false, nil)
		if err := (Names{}).Validate(t.Context(), a, nil); (err == nil) != want || err != nil && !apierrors.IsBadRequest(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
