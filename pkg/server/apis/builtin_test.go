package apis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/test/etcdtest"
)

func builtInNames() (names []string) {
	for _, role := range access.ClusterRoles() {
		names = append(names, role.Name)
	}
	return names
}

// notInView and notInEdit are the resources in namespaces that role view does not read, and that role edit does not
// create, with the reason. Role admin does.
var (
	ofRBAC    = "who may change roles can give rights"
	notInView = map[string]string{
		"secrets":         "one may be a credential of somebody who may do more",
		"leases":          "Kubernetes' view does not read them",
		"leasecandidates": "Kubernetes' view does not read leases",
		"roles":           ofRBAC,
		"rolebindings":    ofRBAC,
	}
	notInEdit = map[string]string{"roles": ofRBAC, "rolebindings": ofRBAC}
)

func TestEveryResourceInNamespacesIsInTheRolesForUsers(t *testing.T) {
	roles := map[string]*rbacv1.ClusterRole{}
	for _, role := range access.ClusterRoles() {
		roles[role.Name] = role
	}
	allows := func(role, verb string, resource schema.GroupVersionResource, subresource string) bool {
		return slices.ContainsFunc(roles[role].Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.APIGroups, resource.Group) && slices.Contains(rule.Resources, resource.Resource+subresource)
		})
	}
	inNamespaces := 0
	for _, r := range Resources() {
		if !r.Namespaced {
			continue
		}
		inNamespaces++
		name, editor := r.GVR.Resource, "edit"
		if notInEdit[name] != "" {
			editor = "admin"
		}
		for _, verb := range []string{"get", "list", "watch"} {
			if allows("view", verb, r.GVR, "") == (notInView[name] != "") {
				t.Errorf("may role view %s %s? Add them to it (access/builtin.go), or to notInView with a reason", verb, name)
			}
			if !allows(editor, verb, r.GVR, "") {
				t.Errorf("role %s may not %s %s (access/builtin.go)", editor, verb, name)
			}
		}
		for _, verb := range []string{"create", "update", "patch"} {
			if allows("edit", verb, r.GVR, "") == (notInEdit[name] != "") {
				t.Errorf("may role edit %s %s? Add them to it (access/builtin.go), or to notInEdit with a reason", verb, name)
			}
			if !allows("admin", verb, r.GVR, "") {
				t.Errorf("role admin may not %s %s (access/builtin.go)", verb, name)
			}
		}
		if allows(editor, "delete", r.GVR, "") && !allows(editor, "update", r.GVR, "/finalizers") {
			t.Errorf("role %s may delete %s, and its objects may not keep one from being deleted: it needs update of %s/finalizers (access/builtin.go)", editor, name, name)
		}
	}
	if inNamespaces < 8 {
		t.Errorf("only %d resources are in namespaces", inNamespaces)
	}
}

func TestBuiltInRolesAreReadInEveryClusterAndStoredInNone(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	roles := s.kube(t, "aa").RbacV1().ClusterRoles()
	own := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{"kubernetes.io/bootstrapping": "mine"}}}
	if _, err := roles.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := append(builtInNames(), "own")
	for name, c := range map[string]struct {
		opts metav1.ListOptions
		want []string
	}{
		"all":                    {metav1.ListOptions{}, all},
		"from the cache":         {metav1.ListOptions{ResourceVersion: "0"}, all},
		"by name":                {metav1.ListOptions{FieldSelector: "metadata.name=edit"}, []string{"edit"}},
		"by another name":        {metav1.ListOptions{FieldSelector: "metadata.name=own"}, []string{"own"}},
		"by label":               {metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"}, builtInNames()},
		"the first of the pages": {metav1.ListOptions{Limit: 1}, all},
	} {
		list, err := roles.List(t.Context(), c.opts)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := namesOf(list.Items); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	admin, err := roles.Get(t.Context(), "cluster-admin", metav1.GetOptions{})
	if err != nil || admin.Annotations["kcp.io/cluster"] != "aa" || admin.UID == "" || !clusters.IsBuiltIn(admin) || admin.Rules[0].Verbs[0] != "*" {
		t.Errorf("cluster-admin is %+v (%v)", admin, err)
	}
	if again, err := roles.Get(t.Context(), "cluster-admin", metav1.GetOptions{}); err != nil || again.UID != admin.UID {
		t.Errorf("its uid is another the second time: %s, %s (%v)", admin.UID, again.UID, err)
	}
	everywhere, err := s.kube(t, "*").RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(namesOf(everywhere.Items), []string{"own"}) {
		t.Errorf("over all clusters there are %q (%v), want what is stored", namesOf(everywhere.Items), err)
	}
	keys, err := s.storage.Etcd().Get(t.Context(), "/registry/rbac.authorization.k8s.io/clusterroles/aa/own")
	if err != nil || len(keys.Kvs) != 1 {
		t.Fatalf("the own role is not where this test looks: %v (%v)", keys, err)
	}
	if keys, err = s.storage.Etcd().Get(t.Context(), "/registry/rbac.authorization.k8s.io/clusterroles/aa/edit"); err != nil || len(keys.Kvs) != 0 {
		t.Errorf("a built-in role is stored: %v (%v)", keys, err)
	}
}

func namesOf(roles []rbacv1.ClusterRole) (names []string) {
	for _, r := range roles {
		names = append(names, r.Name)
	}
	return slices.Sorted(slices.Values(names))
}

func TestNobodyWritesWhatIsBuiltIn(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	roles := s.kube(t, "aa").RbacV1().ClusterRoles()
	view, err := roles.Get(t.Context(), "view", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"create": func() error {
			_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, metav1.CreateOptions{})
			return err
		},
		"create a reserved name": func() error {
			_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:regent:mine"}}, metav1.CreateOptions{})
			return err
		},
		"generate a reserved name": func() error {
			_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "system:regent:"}}, metav1.CreateOptions{})
			return err
		},
		// The name is the one that counts. What is stored under it could not be seen or deleted, and give
		// rights for ever.
		"create with a name and one to generate": func() error {
			_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view", GenerateName: "x"}}, metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			_, err := roles.Update(t.Context(), view, metav1.UpdateOptions{})
			return err
		},
		"patch": func() error {
			_, err := roles.Patch(t.Context(), "view", types.MergePatchType, []byte(`{"rules":null}`), metav1.PatchOptions{})
			return err
		},
		"apply": func() error {
			_, err := roles.Apply(t.Context(), applyrbacv1.ClusterRole("view"), metav1.ApplyOptions{FieldManager: "m", Force: true})
			return err
		},
		"delete": func() error { return roles.Delete(t.Context(), "view", metav1.DeleteOptions{}) },
		"a binding": func() error {
			return s.kube(t, "aa").RbacV1().ClusterRoleBindings().Delete(t.Context(), "system:discovery", metav1.DeleteOptions{})
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(fmt.Sprint(err), "use another name") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := roles.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("to delete all of one's own: %v", err)
	}
	if now, err := roles.Get(t.Context(), "view", metav1.GetOptions{}); err != nil || len(now.Rules) == 0 {
		t.Errorf("afterwards view is %+v (%v)", now, err)
	}
}

// Clients that keep a cache begin in one of these ways.
func TestWatchesBeginWithWhatIsBuiltInIfTheyBeginWithWhatIs(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	roles := s.kube(t, "aa").RbacV1().ClusterRoles()
	for name, c := range map[string]struct {
		opts metav1.ListOptions
		want []string
	}{
		"from now":         {metav1.ListOptions{}, builtInNames()},
		"from a cache":     {metav1.ListOptions{ResourceVersion: "0"}, builtInNames()},
		"as a watch list":  {metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true}, builtInNames()},
		"of one of them":   {metav1.ListOptions{FieldSelector: "metadata.name=view"}, []string{"view"}},
		"of another":       {metav1.ListOptions{FieldSelector: "metadata.name=last"}, nil},
		"after a list":     {metav1.ListOptions{ResourceVersion: listed(t, roles)}, nil},
		"of what comes on": {metav1.ListOptions{SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := roles.Watch(t.Context(), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			last := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "last"}}
			if _, err := roles.Create(t.Context(), last, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = roles.Delete(t.Context(), "last", metav1.DeleteOptions{}) }()
			var got []string
			for event := range events.ResultChan() {
				role, ok := event.Object.(*rbacv1.ClusterRole)
				if ok && role.Name == "last" {
					break
				}
				if ok && role.Name != "" { // not a bookmark
					got = append(got, role.Name)
				}
				if name == "of one of them" && len(got) == 1 {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("it begins with %q, want %q", got, c.want)
			}
		})
	}
}

func listed(t *testing.T, roles interface {
	List(ctx context.Context, opts metav1.ListOptions) (*rbacv1.ClusterRoleList, error)
}) string {
	t.Helper()
	list, err := roles.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}
