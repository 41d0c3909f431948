// Package rbac describes the served resources of rbac.authorization.k8s.io/v1.
package rbac

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Resources are the resources of the group.
var Resources = []resource.Described{roles, roleBindings, clusterRoles, clusterRoleBindings}

var roles = resource.Definition[*rbacv1.Role]{
	GVR:            rbacv1.SchemeGroupVersion.WithResource("roles"),
	Namespaced:     true,
	List:           &rbacv1.RoleList{},
	Name:           pathSegment,
	CreateOnUpdate: true,
	Unconditional:  true,
	Validate:       validateRole,
	Columns:        []resource.Column[*rbacv1.Role]{resource.Name[*rbacv1.Role](), createdAt[*rbacv1.Role]()},
}

var clusterRoles = resource.Definition[*rbacv1.ClusterRole]{
	GVR:            rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
	List:           &rbacv1.ClusterRoleList{},
	Name:           pathSegment,
	CreateOnUpdate: true,
	Unconditional:  true,
	Validate:       validateClusterRole,
	Columns:        []resource.Column[*rbacv1.ClusterRole]{resource.Name[*rbacv1.ClusterRole](), createdAt[*rbacv1.ClusterRole]()},
	Wrap: func(store *resource.Store) rest.Storage {
		return withBuiltIn(store, access.ClusterRoles())
	},
}

var roleBindings = resource.Definition[*rbacv1.RoleBinding]{
	GVR:            rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
	Namespaced:     true,
	List:           &rbacv1.RoleBindingList{},
	Name:           pathSegment,
	CreateOnUpdate: true,
	Unconditional:  true,
	Default:        func(b *rbacv1.RoleBinding) { setBindingDefaults(&b.RoleRef, b.Subjects) },
	Validate:       validateRoleBinding,
	ValidateUpdate: func(b, old *rbacv1.RoleBinding) field.ErrorList { return validateSameRole(b.RoleRef, old.RoleRef) },
	Columns: bindingColumns(func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
		return b.RoleRef, b.Subjects
	}),
}

var clusterRoleBindings = resource.Definition[*rbacv1.ClusterRoleBinding]{
	GVR:            rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	List:           &rbacv1.ClusterRoleBindingList{},
	Name:           pathSegment,
	CreateOnUpdate: true,
	Unconditional:  true,
	BuiltIn:        clusters.BuiltIn.ClusterRoleBindings,
	Default:        func(b *rbacv1.ClusterRoleBinding) { setBindingDefaults(&b.RoleRef, b.Subjects) },
	Validate:       validateClusterRoleBinding,
	ValidateUpdate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
		return validateSameRole(b.RoleRef, old.RoleRef)
	},
	Columns: bindingColumns(func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
		return b.RoleRef, b.Subjects
	}),
	Wrap: func(store *resource.Store) rest.Storage {
		return withBuiltIn(store, access.ClusterRoleBindings())
	},
}

// setBindingDefaults sets the API groups of a role and of subjects where they can only be these.
func setBindingDefaults(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for n := range subjects {
		if s := &subjects[n]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func createdAt[T resource.Object]() resource.Column[T] {
	return resource.Column[T]{
		Name: "Created At", Type: "date", Description: "When it was created. Built-in ones have always been there.",
		Cell: func(obj T) any {
			created := obj.GetCreationTimestamp()
			if created.IsZero() {
				return "<built-in>"
			}
			return created.UTC().Format("2006-01-02T15:04:05Z")
		},
	}
}

func bindingColumns[T resource.Object](of func(T) (rbacv1.RoleRef, []rbacv1.Subject)) []resource.Column[T] {
	named := func(kind string) func(T) any {
		return func(obj T) any {
			var names []string
			_, subjects := of(obj)
			for _, s := range subjects {
				switch {
				case s.Kind != kind:
				case s.Namespace != "":
					names = append(names, s.Namespace+"/"+s.Name)
				default:
					names = append(names, s.Name)
				}
			}
			return strings.Join(names, ", ")
		}
	}
	return []resource.Column[T]{
		resource.Name[T](),
		{Name: "Role", Description: "The role that is granted", Cell: func(obj T) any {
			ref, _ := of(obj)
			return fmt.Sprintf("%s/%s", ref.Kind, ref.Name)
		}},
		resource.Age[T](),
		{Name: "Users", Wide: true, Description: "Users who have the role", Cell: named(rbacv1.UserKind)},
		{Name: "Groups", Wide: true, Description: "Groups that have the role", Cell: named(rbacv1.GroupKind)},
		{Name: "ServiceAccounts", Wide: true, Description: "Service accounts that have the role", Cell: named(rbacv1.ServiceAccountKind)},
	}
}
