package access_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/access"
)

// town is a cluster whose people have the rights of a random policy, and one of them, the writer, writes roles and
// bindings. All have been let in.
type town struct {
	*rapid.T
	policy *access.Snapshot
	writer *user.DefaultInfo
	all    alphabet
	rights map[string]model // of each of the people
	counts *counts
}

type counts struct{ allowed, refused, anyway, deleted int }

var townspeople = slices.DeleteFunc(slices.Clone(people), func(s string) bool { return strings.ContainsAny(s, "!") || s == "anonymous" })

func townAlphabet() alphabet {
	a := newAlphabet()
	for _, p := range []permission{
		{verb: "get", namespace: "a", group: rbacv1.GroupName, resource: "pods", subresource: "log", name: "r", path: "/api"},
		{verb: "escalate", namespace: "b", resource: "clusterroles", path: "/x"},
		{verb: "bind", resource: "roles"},
	} {
		a.take(p)
	}
	return a
}

func newTown(t *rapid.T, counts *counts) *town {
	d := drawDocument(t, "c")
	for _, name := range slices.Sorted(maps.Keys(d.Roles)) {
		d.Roles[name] = townRules(t, strings.Contains(name, "/"))
		if rapid.Bool().Draw(t, "can be taken in") {
			d.Labels[name] = map[string]string{"x": "1"}
		}
	}
	d.Bindings["open"] = binding{"ClusterRole/" + access.AccessRole, []string{"Group/system:authenticated"}}
	d.Bindings["writer"] = binding{"ClusterRole/r", []string{"User/bob"}}
	w := &town{T: t, policy: &access.Snapshot{}, writer: person("bob+devs"), all: townAlphabet(), counts: counts}
	d.add(w.policy)
	w.settle()
	w.rights = w.everybodysRights()
	return w
}

func townRules(t *rapid.T, namespaced bool) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		r := rbacv1.PolicyRule{Verbs: rapid.SliceOfN(rapid.SampledFrom([]string{"*", "get", "get", "escalate", "bind"}), 1, 2).Draw(t, "verbs")}
		if !namespaced && rapid.IntRange(0, 3).Draw(t, "urls") == 0 {
			r.NonResourceURLs = rapid.SliceOfN(rapid.SampledFrom([]string{"*", "/api", "/ap*", "/x", "/x*"}), 1, 2).Draw(t, "paths")
		} else {
			r.APIGroups = rapid.SliceOfN(rapid.SampledFrom([]string{"*", "", rbacv1.GroupName}), 1, 2).Draw(t, "groups")
			r.Resources = rapid.SliceOfN(rapid.SampledFrom([]string{"*", "pods", "pods/log", "*/log", "roles", "clusterroles"}), 1, 2).Draw(t, "resources")
			r.ResourceNames = rapid.SliceOfN(rapid.SampledFrom([]string{"r", "s"}), 0, 1).Draw(t, "names")
		}
		rules = append(rules, r)
	}
	return rules
}

func (w *town) everybodysRights() map[string]model {
	out := map[string]model{}
	for _, who := range townspeople {
		out[who] = modelOf(w.policy, "c", person(who), w.all)
	}
	return out
}

// settle does what the controller of aggregated roles does.
func (w *town) settle() {
	for range w.policy.ClusterRoleList { // so often, so that chains settle
		for _, into := range w.policy.ClusterRoleList {
			if into.AggregationRule == nil {
				continue
			}
			into.Rules = nil
			for _, of := range w.policy.ClusterRoleList {
				selector, err := metav1.LabelSelectorAsSelector(&into.AggregationRule.ClusterRoleSelectors[0])
				if err != nil {
					w.Fatal(err)
				}
				if of != into && selector.Matches(labels.Set(of.Labels)) {
					into.Rules = append(into.Rules, of.Rules...)
				}
			}
		}
	}
}

// rules draws rules to write: any, or those that the writer has, a bit narrower or wider.
func (w *town) rules(namespace string) []rbacv1.PolicyRule {
	own, _ := access.RightsOf(w.read(), "c", w.writer, namespace)
	if namespace != "" { // stored roles of namespaces have no such rules
		own = slices.DeleteFunc(own, func(r rbacv1.PolicyRule) bool { return len(r.NonResourceURLs) > 0 })
	}
	if len(own) == 0 || rapid.IntRange(0, 3).Draw(w.T, "any rules") == 0 {
		return townRules(w.T, namespace != "")
	}
	drawn := rapid.SampledFrom(own).Draw(w.T, "own rule")
	rule := *drawn.DeepCopy()
	switch rapid.IntRange(0, 5).Draw(w.T, "change") {
	case 0:
		rule.Verbs = []string{rapid.SampledFrom([]string{"get", "escalate", "*"}).Draw(w.T, "verb")}
	case 1:
		rule.ResourceNames = nil
	case 2:
		if len(rule.Resources) > 0 {
			rule.Resources = []string{rapid.SampledFrom([]string{"pods", "pods/log", "*/log", "*"}).Draw(w.T, "resource")}
		}
	case 3:
		if len(rule.APIGroups) > 0 {
			rule.APIGroups = []string{rapid.SampledFrom([]string{"", "*"}).Draw(w.T, "group")}
		}
	case 4:
		if len(rule.NonResourceURLs) > 0 {
			rule.NonResourceURLs = []string{rapid.SampledFrom([]string{"/api", "/a*", "*"}).Draw(w.T, "path")}
		}
	}
	return []rbacv1.PolicyRule{rule}
}

// write draws a write, and does it if it is allowed.
func (w *town) write() {
	namespace := rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.T, "namespace")
	name := rapid.SampledFrom([]string{"r", "s", "b0", "b1", "writer"}).Draw(w.T, "name")
	meta := metaOf("c", strings.TrimPrefix(namespace+"/"+name, "/"))
	if rapid.IntRange(0, 4).Draw(w.T, "delete") == 0 {
		w.remove(namespace, name)
		return
	}
	subjects := subjectsOf(some(w.T, "subjects", somebody...))
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rapid.SampledFrom(clusterRoleNames).Draw(w.T, "role")}
	if namespace != "" && rapid.Bool().Draw(w.T, "to a Role") {
		ref.Kind, ref.Name = "Role", "r"
	}
	switch isRole := rapid.Bool().Draw(w.T, "is a role"); {
	case isRole && namespace == "":
		role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: w.rules("")}
		role.Labels = rapid.SampledFrom([]map[string]string{nil, nil, {"x": "1"}, {controllers.AggregationPrefix + "view": "true"}, {controllers.AggregationPrefix + "admin": "true", "x": "1"}}).Draw(w.T, "labels")
		if rapid.IntRange(0, 4).Draw(w.T, "aggregates") == 0 {
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"x": "1"}}}}
		}
		put(w, &w.policy.ClusterRoleList, role, "clusterroles", nil)
	case isRole:
		put(w, &w.policy.RoleList, &rbacv1.Role{ObjectMeta: meta, Rules: w.rules(namespace)}, "roles", nil)
	case namespace == "":
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if at := find(w.policy.ClusterRoleBindingList, b); at >= 0 {
			b.RoleRef = w.policy.ClusterRoleBindingList[at].RoleRef // validation keeps it
		}
		put(w, &w.policy.ClusterRoleBindingList, b, "clusterrolebindings", &b.RoleRef)
	default:
		b := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if at := find(w.policy.RoleBindingList, b); at >= 0 {
			b.RoleRef = w.policy.RoleBindingList[at].RoleRef
		}
		put(w, &w.policy.RoleBindingList, b, "rolebindings", &b.RoleRef)
	}
}

func find[T clusters.Object](list []T, obj T) int {
	return slices.IndexFunc(list, func(o T) bool { return clusters.KeyOf(o) == clusters.KeyOf(obj) })
}

func (w *town) remove(namespace, name string) {
	gone := clusters.Key{Cluster: "c", Namespace: namespace, Name: name}
	w.policy.ClusterRoleList = slices.DeleteFunc(w.policy.ClusterRoleList, func(o *rbacv1.ClusterRole) bool { return clusters.KeyOf(o) == gone })
	w.policy.RoleList = slices.DeleteFunc(w.policy.RoleList, func(o *rbacv1.Role) bool { return clusters.KeyOf(o) == gone })
	w.policy.ClusterRoleBindingList = slices.DeleteFunc(w.policy.ClusterRoleBindingList, func(o *rbacv1.ClusterRoleBinding) bool { return clusters.KeyOf(o) == gone })
	w.policy.RoleBindingList = slices.DeleteFunc(w.policy.RoleBindingList, func(o *rbacv1.RoleBinding) bool { return clusters.KeyOf(o) == gone })
	w.counts.allowed--
	w.counts.deleted++
	w.judge("delete "+gone.String(), false)
}

// put writes an object, if the writer may.
func put[T clusters.Object](w *town, list *[]T, obj T, resource string, ref *rbacv1.RoleRef) {
	at, op := find(*list, obj), admission.Create
	var old T
	if at >= 0 {
		old, op = (*list)[at], admission.Update
	}
	what := fmt.Sprintf("%s of %s %+v", op, resource, obj)
	a := admission.NewAttributesRecord(obj, nil, rbacv1.SchemeGroupVersion.WithKind(""), obj.GetNamespace(), obj.GetName(), rbacv1.SchemeGroupVersion.WithResource(resource), "", op, nil, false, w.writer)
	if at >= 0 {
		a = admission.NewAttributesRecord(obj, old, rbacv1.SchemeGroupVersion.WithKind(""), obj.GetNamespace(), obj.GetName(), rbacv1.SchemeGroupVersion.WithResource(resource), "", op, nil, false, w.writer)
	}
	e := &access.Escalation{
		Stored:     func(context.Context, logicalcluster.Name) (access.Policy, error) { return w.read(), nil },
		Authorizer: &access.Authorizer{Policy: w.read()},
	}
	anyway := w.mayAnyway(obj.GetNamespace(), obj.GetName(), resource, ref)
	if err := e.Validate(clusters.With(w.Context(), "c"), a, nil); err != nil {
		if anyway {
			w.Fatalf("%s, by somebody who may escalate or bind: %v", what, err)
		}
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			w.Fatalf("%s: %v", what, err)
		}
		w.counts.refused++
		return
	}
	if at >= 0 {
		(*list)[at] = obj
	} else {
		*list = append(*list, obj)
	}
	w.judge(what, anyway)
}

// mayAnyway reports whether the verbs escalate and bind allow the writer more than it has, by the model.
func (w *town) mayAnyway(namespace, name, resource string, ref *rbacv1.RoleRef) bool {
	p := permission{verb: "escalate", namespace: namespace, group: rbacv1.GroupName, resource: resource, name: name}
	if ref != nil {
		p.verb, p.resource, p.name = "bind", "clusterroles", ref.Name
		if ref.Kind == "Role" {
			p.resource = "roles"
		}
	}
	all := townAlphabet()
	all.take(p)
	return modelOf(w.policy, "c", w.writer, all)[p]
}

// judge compares what everybody may do now with what they, or the writer, could do before.
func (w *town) judge(what string, anyway bool) {
	w.settle()
	before := w.rights
	w.rights = w.everybodysRights()
	if anyway {
		w.counts.anyway++
		return
	}
	w.counts.allowed++
	for who, rights := range w.rights {
		for p := range rights {
			if !before[who][p] && !before["bob+devs"][p] {
				w.Fatalf("%s: %s may %+v now, which neither they nor the writer could", what, who, p)
			}
		}
	}
}

// I14: nobody gives a right that they do not have, whatever they write one after the other: neither to themselves nor
// to others.
func TestNoSequenceOfAllowedWritesGivesARightThatTheWriterDidNotHaveI14(t *testing.T) {
	counts := &counts{}
	rapid.Check(t, func(t *rapid.T) {
		w := newTown(t, counts)
		if w.rights["bob+devs"] == nil || w.writer.Name != "bob" {
			t.Fatal("the writer is not in the cluster")
		}
		first := w.rights
		for range rapid.IntRange(4, 16).Draw(t, "writes") {
			anyway := counts.anyway
			w.write()
			if counts.anyway != anyway {
				first = nil
			}
		}
		for who, rights := range w.rights {
			for p := range rights {
				if first != nil && !first[who][p] && !first["bob+devs"][p] {
					t.Fatalf("in the end %s may %+v", who, p)
				}
			}
		}
	})
	t.Logf("%+v", *counts)
	if counts.allowed < 100 || counts.refused < 100 || counts.anyway < 10 {
		t.Errorf("%+v: the writes try too little", *counts)
	}
}

// read returns what is stored now. A Snapshot must not change once it is used.
func (w *town) read() *access.Snapshot {
	return &access.Snapshot{
		ClusterRoleList: w.policy.ClusterRoleList, RoleList: w.policy.RoleList,
		ClusterRoleBindingList: w.policy.ClusterRoleBindingList, RoleBindingList: w.policy.RoleBindingList,
	}
}
