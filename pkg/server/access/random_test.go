package access_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/access"
)

// world is a small alphabet of requests, of which each rule can say something.
func world() alphabet {
	a := newAlphabet()
	for _, p := range []permission{
		{verb: "get", namespace: "a", group: "apps", resource: "pods", subresource: "log", name: "x", path: "/api"},
		{verb: "list", namespace: "b", resource: "roles", subresource: "scale", name: "y", path: "/api/v1"},
		{verb: "create"},
	} {
		a.take(p)
	}
	return a
}

// each calls do with each request of the alphabet.
func (a alphabet) each(do func(permission)) {
	for verb := range a.verbs {
		for path := range a.paths {
			if path != "" {
				do(permission{verb: verb, path: path})
			}
		}
		for namespace := range a.namespaces {
			for group := range a.groups {
				for resource := range a.resources {
					for sub := range a.subresources {
						for name := range a.names {
							if resource != "" {
								do(permission{verb, namespace, group, resource, sub, name, ""})
							}
						}
					}
				}
			}
		}
	}
}

func (p permission) attributes() authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: p.verb, Namespace: p.namespace, APIGroup: p.group, Resource: p.resource, Subresource: p.subresource, Name: p.name,
		Path: p.path, ResourceRequest: p.path == "",
	}
}

func some(t *rapid.T, what string, from ...string) []string {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 3).Draw(t, what)
}

func drawRule(t *rapid.T, namespaced bool) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: some(t, "verbs", "*", "get", "list", "create", "access", "access")}
	if !namespaced && rapid.IntRange(0, 2).Draw(t, "urls") == 0 {
		r.NonResourceURLs = some(t, "paths", "*", "/", "/*", "/api", "/api*", "/api/*", "/ap*", "/x", "/api/v1*")
		return r
	}
	r.APIGroups = some(t, "groups", "*", "", "apps", "app")
	r.Resources = some(t, "resources", "*", "pods", "roles", "pods/log", "*/log", "*/scale", "roles/*", "pod", "*/lo", "pods/")
	r.ResourceNames = some(t, "names", "x", "y", "*", "")
	return r
}

func drawRules(t *rapid.T, namespaced bool) []rbacv1.PolicyRule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule { return drawRule(t, namespaced) }), 0, 3).Draw(t, "rules")
}

var (
	clusterRoleNames = []string{"r", "s", "view", "edit", "admin", "cluster-admin", "system:kcp:workspace:access", "missing"}
	somebody         = []string{
		"User/ann", "User/bob", "Group/devs", "Group/ops", "Group/system:authenticated", "ServiceAccount/a/bot", "ServiceAccount/bot",
		"Group/system:serviceaccounts:a", "Group/system:cluster:other", "User/system:anonymous", "User/devs", "Group/ann",
	}
	people = []string{"ann", "bob+devs", "eve+ops+devs", "devs", "a/bot", "a/bot@c", "b/bot@c", "a/bot@other", "anonymous", "ann!authorization.kcp.io/warrant"}
)

// drawDocument draws the policy of a cluster.
func drawDocument(t *rapid.T, cluster string) document {
	d := document{Cluster: cluster, Roles: map[string][]rbacv1.PolicyRule{}, Labels: map[string]map[string]string{}, Bindings: map[string]binding{}}
	for _, name := range []string{"r", "s", "a/r", "b/r"} {
		if rapid.Bool().Draw(t, "has "+name) {
			d.Roles[name] = drawRules(t, len(name) > 1)
		}
		if to := rapid.SampledFrom([]string{"", "view", "edit", "admin", "cluster-admin"}).Draw(t, "to"); to != "" {
			d.Labels[name] = map[string]string{controllers.AggregationPrefix + to: rapid.SampledFrom([]string{"true", "true", "false"}).Draw(t, "label")}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "open") > 0 {
		d.Bindings["open"] = binding{"ClusterRole/" + access.AccessRole, []string{"Group/system:authenticated"}}
	}
	for n := range rapid.IntRange(0, 5).Draw(t, "bindings") {
		namespace := rapid.SampledFrom([]string{"", "a/", "b/"}).Draw(t, "in")
		role := "ClusterRole/" + rapid.SampledFrom(clusterRoleNames).Draw(t, "role")
		if namespace != "" && rapid.Bool().Draw(t, "to a Role") {
			role = "Role/r"
		}
		d.Bindings[fmt.Sprintf("%sb%d", namespace, n)] = binding{role, some(t, "subjects", somebody...)}
	}
	return d
}

// What a policy allows of all the requests of a small world is what the model has written out.
func TestRandomPoliciesAllowWhatTheModelHasWrittenOut(t *testing.T) {
	all := world()
	rapid.Check(t, func(t *rapid.T) {
		policy := &access.Snapshot{}
		for _, cluster := range []string{"c", "other", "system:admin"} {
			drawDocument(t, cluster).add(policy)
		}
		who := person(rapid.SampledFrom(people).Draw(t, "who"))
		for _, cluster := range []string{"c", "*", "system:admin"} {
			want := modelOf(policy, cluster, who, all)
			all.each(func(p permission) {
				attr := p.attributes()
				attr.User = who
				if got := ask(t, policy, cluster, attr); got != want[p] {
					t.Fatalf("%s in %s: %+v is allowed: %t, want %t", who.Name, cluster, p, got, want[p])
				}
			})
		}
	})
}
