package access_test

import (
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/server/access"
)

// permission is one request that somebody may make: a verb on one object, or on one path.
type permission struct{ verb, namespace, group, resource, subresource, name, path string }

// alphabet is everything that can be asked for. The model writes out what each rule allows of it.
type alphabet struct {
	verbs, namespaces, groups, resources, subresources, names, paths map[string]bool
}

func newAlphabet() alphabet {
	a := alphabet{}
	for _, set := range []*map[string]bool{&a.verbs, &a.namespaces, &a.groups, &a.resources, &a.subresources, &a.names, &a.paths} {
		*set = map[string]bool{}
	}
	a.take(permission{verb: "access", path: "/"})
	return a
}

func (a alphabet) take(p permission) {
	a.verbs[p.verb], a.namespaces[p.namespace], a.groups[p.group], a.resources[p.resource] = true, true, true, true
	a.subresources[p.subresource], a.names[p.name], a.paths[p.path] = true, true, true
}

func alphabetOf(s script) alphabet {
	a := newAlphabet()
	for _, q := range s.questions {
		a.take(permissionOf(q.attr))
	}
	return a
}

func permissionOf(a authorizer.AttributesRecord) permission {
	return permission{a.Verb, a.Namespace, a.APIGroup, a.Resource, a.Subresource, a.Name, a.Path}
}

// model is the obviously right model: everything that one user may do in one cluster, written out.
type model map[permission]bool

func (m model) allows(a authorizer.AttributesRecord) bool { return m[permissionOf(a)] }

// modelOf writes out what a user may do.
func modelOf(policy *access.Snapshot, cluster string, u user.Info, all alphabet) model {
	for key := range u.GetExtra() {
		if key != "authentication.kcp.io/cluster-name" {
			return nil
		}
	}
	rbacOf, gate, builtInBindings := cluster, true, access.ClusterRoleBindings()
	switch {
	case cluster == "" || strings.HasPrefix(cluster, "system:"):
		return nil
	case cluster == "*": // what system:admin gives in all namespaces
		rbacOf, gate, builtInBindings = "system:admin", false, nil
	}
	who := map[string]bool{}
	home := u.GetExtra()["authentication.kcp.io/cluster-name"]
	account := strings.Split(u.GetName(), ":")
	isAccount := len(account) == 4 && account[0] == "system" && account[1] == "serviceaccount"
	switch {
	case len(home) == 0 || len(home) == 1 && home[0] == rbacOf:
		who["User/"+u.GetName()] = true
		for _, g := range u.GetGroups() {
			who["Group/"+g] = true
		}
		if isAccount {
			who["ServiceAccount/"+account[2]+"/"+account[3]] = true
			gate = false
		}
	default:
		who["User/system:anonymous"], who["Group/system:authenticated"] = true, true
		if isAccount && len(home) == 1 {
			who["Group/system:cluster:"+home[0]] = true
			who["Group/system:cluster:"+home[0]+":"+account[2]+":"+account[3]] = true
		}
	}

	may := model{}
	for _, b := range append(builtInBindings, policy.ClusterRoleBindingList...) {
		if b.Annotations[logicalcluster.AnnotationKey] != rbacOf && b.Annotations != nil || !concerns(who, b.Subjects, "") {
			continue
		}
		for _, rule := range rulesNamed(policy, rbacOf, "", b.RoleRef) {
			writeOut(may, rule, all, all.namespaces)
			for verb := range all.verbs {
				for path := range all.paths {
					if listed(rule.Verbs, verb) && path != "" && pathListed(rule.NonResourceURLs, path) {
						may[permission{verb: verb, path: path}] = true
					}
				}
			}
		}
	}
	if gate && !may[permission{verb: "access", path: "/"}] {
		return nil
	}
	for _, b := range policy.RoleBindingList {
		if cluster == "*" || b.Annotations[logicalcluster.AnnotationKey] != rbacOf || !all.namespaces[b.Namespace] || !concerns(who, b.Subjects, b.Namespace) {
			continue
		}
		for _, rule := range rulesNamed(policy, rbacOf, b.Namespace, b.RoleRef) {
			writeOut(may, rule, all, map[string]bool{b.Namespace: true})
		}
	}
	return may
}

func concerns(who map[string]bool, subjects []rbacv1.Subject, namespace string) bool {
	for _, s := range subjects {
		name := s.Name
		if s.Kind == "ServiceAccount" {
			if s.Namespace == "" {
				s.Namespace = namespace
			}
			name = s.Namespace + "/" + s.Name
		}
		if who[s.Kind+"/"+name] {
			return true
		}
	}
	return false
}

// rulesNamed returns the rules that a binding refers to: none, if there is no such role.
func rulesNamed(policy *access.Snapshot, cluster, namespace string, ref rbacv1.RoleRef) (rules []rbacv1.PolicyRule) {
	for _, r := range policy.RoleList {
		if ref.Kind == "Role" && namespace != "" && r.Annotations[logicalcluster.AnnotationKey] == cluster && r.Namespace == namespace && r.Name == ref.Name {
			rules = append(rules, r.Rules...)
		}
	}
	if ref.Kind != "ClusterRole" {
		return rules
	}
	takesIn := map[string]string{"view": "view", "edit": "view edit", "admin": "view edit admin"}[ref.Name]
	for _, r := range policy.ClusterRoleList {
		if r.Annotations[logicalcluster.AnnotationKey] != cluster {
			continue
		}
		if r.Name == ref.Name {
			rules = append(rules, r.Rules...)
		}
		for _, role := range strings.Fields(takesIn) {
			if r.Labels["rbac.authorization.k8s.io/aggregate-to-"+role] == "true" {
				rules = append(rules, r.Rules...)
			}
		}
	}
	for _, r := range access.ClusterRoles() {
		if r.Name == ref.Name {
			rules = append(rules, r.Rules...)
		}
	}
	return rules
}

// writeOut adds all that a rule allows in the namespaces, one permission after the other.
func writeOut(may model, rule rbacv1.PolicyRule, all alphabet, namespaces map[string]bool) {
	for verb := range all.verbs {
		for group := range all.groups {
			for resource := range all.resources {
				for sub := range all.subresources {
					for name := range all.names {
						if !listed(rule.Verbs, verb) || !listed(rule.APIGroups, group) || !resourceListed(rule.Resources, resource, sub) || !nameListed(rule.ResourceNames, name) {
							continue
						}
						for namespace := range namespaces {
							may[permission{verb, namespace, group, resource, sub, name, ""}] = true
						}
					}
				}
			}
		}
	}
}

func listed(list []string, value string) bool {
	for _, l := range list {
		if l == "*" || l == value {
			return true
		}
	}
	return false
}

func resourceListed(list []string, resource, sub string) bool {
	for _, l := range list {
		switch {
		case l == "*":
			return true
		case sub == "" && l == resource:
			return true
		case sub != "" && (l == resource+"/"+sub || l == "*/"+sub):
			return true
		}
	}
	return false
}

func nameListed(list []string, name string) bool {
	if len(list) == 0 {
		return true
	}
	for _, l := range list {
		if l == name {
			return true
		}
	}
	return false
}

func pathListed(list []string, path string) bool {
	for _, l := range list {
		if l == path || l[len(l)-1] == '*' && strings.HasPrefix(path, l[:len(l)-1]) {
			return true
		}
	}
	return false
}
