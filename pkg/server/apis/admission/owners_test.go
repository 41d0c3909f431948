package admission_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/server/apis/admission"
)

// Somebody who may patch an object and not delete it could give it an owner that does not exist: garbage collection
// would delete it for them.
func TestOnlyWhoMayDeleteAnObjectChangesItsOwners(t *testing.T) {
	deletes := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "finalizer" && a.GetVerb() == "update" && a.GetResource() == "secrets" && a.GetSubresource() == "finalizers" && a.GetNamespace() == "default" && a.GetName() == "x" {
			return authorizer.DecisionAllow, "", nil
		}
		if a.GetUser().GetName() == "deleter" && a.GetVerb() == "delete" && a.GetResource() == "configmaps" && a.GetNamespace() == "default" && a.GetName() == "c" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	owned := func(by ...string) runtime.Object {
		out := &corev1.ConfigMap{}
		for _, name := range by {
			out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: name, UID: "u"})
		}
		return out
	}
	blocking := func(name string) runtime.Object {
		out := owned(name).(*corev1.ConfigMap)
		out.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true)
		return out
	}
	unknown := blocking("x").(*corev1.ConfigMap)
	unknown.OwnerReferences[0].Kind = "Thing"
	plugin := &admission.Owners{Authorizer: deletes, Resource: func(_ context.Context, kind schema.GroupKind) (schema.GroupVersionResource, bool, bool) {
		return corev1.SchemeGroupVersion.WithResource("secrets"), true, kind.Kind == "Secret"
	}}
	for name, c := range map[string]struct {
		who      user.Info
		old, obj runtime.Object
		refused  bool
	}{
		"a new owner, by an editor":              {&user.DefaultInfo{Name: "editor"}, owned(), owned("x"), true},
		"another owner, by an editor":            {&user.DefaultInfo{Name: "editor"}, owned("x"), owned("y"), true},
		"no owner any more, by an editor":        {&user.DefaultInfo{Name: "editor"}, owned("x"), owned(), true},
		"the same owner, by an editor":           {&user.DefaultInfo{Name: "editor"}, owned("x"), owned("x"), false},
		"a new owner, by a deleter":              {&user.DefaultInfo{Name: "deleter"}, owned(), owned("x"), false},
		"created with an owner":                  {&user.DefaultInfo{Name: "editor"}, nil, owned("x"), false},
		"created, and blocks":                    {&user.DefaultInfo{Name: "editor"}, nil, blocking("x"), true},
		"created, and blocks, by a master":       {&user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}, nil, blocking("x"), false},
		"created, and may block":                 {&user.DefaultInfo{Name: "finalizer"}, nil, blocking("x"), false},
		"created, and blocks another":            {&user.DefaultInfo{Name: "finalizer"}, nil, blocking("y"), true},
		"created, and blocks what is not served": {&user.DefaultInfo{Name: "editor"}, nil, unknown, false},
		"begins to block":                        {&user.DefaultInfo{Name: "deleter"}, owned("x"), blocking("x"), true},
		"blocks as before":                       {&user.DefaultInfo{Name: "editor"}, blocking("x"), blocking("x"), false},
		"blocks no longer":                       {&user.DefaultInfo{Name: "deleter"}, blocking("x"), owned("x"), false},
		"a new owner, by a master":               {&user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}, owned(), owned("x"), false},
	} {
		gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
		operation := upstream.Update
		if c.old == nil {
			operation = upstream.Create
		}
		a := upstream.NewAttributesRecord(c.obj, c.old, schema.GroupVersionKind{}, "default", "c", gvr, "", operation, nil, false, c.who)
		if err := plugin.Validate(t.Context(), a, nil); apierrors.IsForbidden(err) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v, want refused: %t", name, err, c.refused)
		}
	}
}
