package access_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/access"
)

// shard is the storage of a shard's roles and bindings.
type shard map[string]cache.ListerWatcherWithContext

func (s shard) Objects(r schema.GroupVersionResource) cache.ListerWatcherWithContext {
	return s[r.Resource]
}

func (s shard) Metadata(schema.GroupVersionResource) cache.ListerWatcherWithContext { return nil }

func (s shard) CustomObjects() cache.ListerWatcherWithContext { return nil }

// cached returns the policy of informers, as the server makes them, that hold the objects of a snapshot.
func cached(tb testing.TB, s *access.Snapshot) access.Policy {
	tb.Helper()
	informers := controllers.NewInformers(shard{
		"roles":               controllertest.NewSource(s.RoleList...),
		"clusterroles":        controllertest.NewSource(s.ClusterRoleList...),
		"rolebindings":        controllertest.NewSource(s.RoleBindingList...),
		"clusterrolebindings": controllertest.NewSource(s.ClusterRoleBindingList...),
	}, nil)
	controllertest.Run(tb, informers.Roles, informers.ClusterRoles, informers.RoleBindings, informers.ClusterRoleBindings)
	return access.NewCached(informers)
}

// manyClusters are 10,000 clusters with a binding each, and one, big, with so many. Half of those are RoleBindings of
// one namespace. The last of each kind is ann's.
func manyClusters(bindings int) *access.Snapshot {
	s := &access.Snapshot{}
	for n := range 10_000 {
		document{Cluster: fmt.Sprintf("c%05d", n), Bindings: map[string]binding{"workspace-admin": {"ClusterRole/cluster-admin", []string{"User/owner"}}}}.add(s)
	}
	big := document{Cluster: "big", Roles: map[string][]rbacv1.PolicyRule{}, Bindings: map[string]binding{
		"in": {"ClusterRole/" + access.AccessRole, []string{"Group/devs"}},
	}}
	for n := range 10 {
		big.Roles[fmt.Sprintf("role-%d", n)] = []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"x", "y"}},
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		}
	}
	for n := range bindings {
		who := fmt.Sprintf("User/user-%d", n)
		if n >= bindings-2 {
			who = "User/ann"
		}
		at := fmt.Sprintf("b%05d", n)
		if n%2 == 0 {
			at = "default/" + at
		}
		big.Bindings[at] = binding{fmt.Sprintf("ClusterRole/role-%d", n%10), []string{who}}
	}
	big.add(s)
	return s
}

// BenchmarkAuthorize is what the decision about one request takes, in a shard with 10,000 clusters.
func BenchmarkAuthorize(b *testing.B) {
	get := func(who, resource string) authorizer.AttributesRecord {
		a := thing("default:" + resource + "=x")
		a.User, a.Verb = person(who), "get"
		return a
	}
	for _, bindings := range []int{100, 1_000, 10_000} {
		policy := cached(b, manyClusters(bindings))
		for _, c := range []struct {
			name string
			attr authorizer.AttributesRecord
			want authorizer.Decision
		}{
			{"allowed", get("ann+devs+ops", "configmaps"), authorizer.DecisionAllow},
			{"refused", get("ann+devs+ops", "pods"), authorizer.DecisionNoOpinion},
			{"stranger", get("eve", "configmaps"), authorizer.DecisionNoOpinion},
		} {
			b.Run(fmt.Sprintf("%d/%s", bindings, c.name), func(b *testing.B) {
				b.ReportAllocs()
				ctx := clusters.With(b.Context(), "big")
				a := &access.Authorizer{Policy: policy}
				var took []time.Duration
				for b.Loop() {
					begun := time.Now()
					decision, _, _ := a.Authorize(ctx, c.attr)
					took = append(took, time.Since(begun))
					if decision != c.want {
						b.Fatalf("decided %v", decision)
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2]), "ns-p50")
				b.ReportMetric(float64(took[len(took)*99/100]), "ns-p99")
			})
		}
	}
}
