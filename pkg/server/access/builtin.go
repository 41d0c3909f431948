package access

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The roles that the server itself names.
const (
	// AccessRole lets whoever is bound to it enter a logical cluster. Its name is kcp's.
	AccessRole = "system:kcp:workspace:access"
	// AdminRole may do everything in its cluster. Whoever creates a workspace is bound to it.
	AdminRole = "cluster-admin"
)

// ReservedPrefix begins the names of further built-in roles and bindings, of this version or a later one.
const ReservedPrefix = "system:regent:"

// builtIn is the policy that is the same in all clusters, and stored in none.
var builtIn = newBuiltIn()

// aggregates says by which labels further rules belong to a built-in role: who may edit may do what is aggregated to
// view, too.
var aggregates = map[string][]string{
	"view":  {"view"},
	"edit":  {"view", "edit"},
	"admin": {"view", "edit", "admin"},
}

type policySet struct {
	roles    map[string]*rbacv1.ClusterRole
	bindings []*rbacv1.ClusterRoleBinding
}

// ClusterRoles returns the built-in roles, by name. Callers must not change them.
func ClusterRoles() []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, name := range slices.Sorted(maps.Keys(builtIn.roles)) {
		out = append(out, builtIn.roles[name])
	}
	return out
}

// ClusterRoleBindings returns the built-in bindings, by name. Callers must not change them.
func ClusterRoleBindings() []*rbacv1.ClusterRoleBinding { return builtIn.bindings }

var (
	read  = []string{"get", "list", "watch"}
	write = []string{"create", "delete", "deletecollection", "patch", "update"}
)

func newBuiltIn() policySet {
	view := []rbacv1.PolicyRule{
		rule(read, "", "configmaps", "events", "namespaces", "serviceaccounts"),
		rule(read, "", "namespaces/status"),
		rule(read, "events.k8s.io", "events"),
		rule(read, "tenancy.kcp.io", "workspaces", "workspaces/status"),
		rule(read, "core.kcp.io", "logicalclusters", "logicalclusters/status"),
	}
	edit := slices.Concat(view, []rbacv1.PolicyRule{
		rule(write, "", "configmaps", "secrets", "serviceaccounts"),
		rule(read, "", "secrets"), // not in view: a secret may be a credential of somebody who may do more
		rule([]string{"create"}, "", "serviceaccounts/token"),
		rule([]string{"impersonate"}, "", "serviceaccounts"),
		rule([]string{"create", "patch", "update"}, "", "events"),
		rule([]string{"create", "patch", "update"}, "events.k8s.io", "events"),
		rule(slices.Concat(read, write), "coordination.k8s.io", "leases", "leasecandidates"),
		// What a user may delete, that user's objects may keep from being deleted for a while.
		rule([]string{"update"}, "", "configmaps/finalizers", "secrets/finalizers", "serviceaccounts/finalizers"),
		rule([]string{"update"}, "coordination.k8s.io", "leases/finalizers", "leasecandidates/finalizers"),
	})
	admin := slices.Concat(edit, []rbacv1.PolicyRule{
		rule(slices.Concat(read, write), rbacv1.GroupName, "roles", "rolebindings"),
		rule([]string{"create"}, "authorization.k8s.io", "localsubjectaccessreviews"),
		rule(write, "tenancy.kcp.io", "workspaces"),
		rule([]string{"update"}, rbacv1.GroupName, "roles/finalizers", "rolebindings/finalizers"),
		rule([]string{"update"}, "tenancy.kcp.io", "workspaces/finalizers"),
	})
	set := policySet{roles: map[string]*rbacv1.ClusterRole{}}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		AdminRole: {
			rule([]string{"*"}, "*", "*"),
			{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
		},
		"admin":    admin,
		"edit":     edit,
		"view":     view,
		AccessRole: {{Verbs: []string{accessVerb}, NonResourceURLs: []string{accessURL}}},
		"system:discovery": {{Verbs: []string{"get"}, NonResourceURLs: []string{
			"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/", "/healthz", "/livez", "/readyz",
		}}},
		"system:basic-user": {
			rule([]string{"create"}, "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
			rule([]string{"create"}, "authentication.k8s.io", "selfsubjectreviews"),
		},
	} {
		set.roles[name] = &rbacv1.ClusterRole{ObjectMeta: builtInMeta(name), Rules: rules}
	}
	for _, role := range []string{"system:basic-user", "system:discovery"} { // whoever has entered a cluster
		set.bindings = append(set.bindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: builtInMeta(role),
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: user.AllAuthenticated}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: role},
		})
	}
	return set
}

func builtInMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}}
}

func rule(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}
