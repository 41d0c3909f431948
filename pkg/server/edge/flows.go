package edge

import (
	"context"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// flows says for whom requests count.
//
// A tenant is a logical cluster, by its name: its paths are many. So whoever makes many users in a cluster has no
// larger share than others. A member of system:masters, and a member of the installation, is a tenant of its own, in
// all clusters together: it gets into a cluster whose users flood it, and a script of its own does not shut out its
// users.
//
// A user has no more in all clusters together than a cluster has: everybody may make workspaces. It is the one who has
// sent the request that counts, and not the one that is impersonated (access.CountedAs).
//
// Requests for clusters that no cache knows share one tenant: everybody can make up as many names as they like.
type flows struct{ clusters *routing.Filter }

// The tenants that are no clusters. No cluster has such a name.
const (
	tenantUnknown = "(unknown clusters)"
	tenantProcess = "(the process)"
)

// ofRequest returns for whom the request in ctx counts.
func (f *flows) ofRequest(ctx context.Context, who flowcontrol.RequestDigest) fairness.Flow {
	return f.of(ctx, who.User)
}

// countedAs returns the name under which limits over all clusters count the request in ctx.
func countedAs(ctx context.Context, who user.Info) string {
	_, person := access.CountedAs(ctx, who)
	return person
}

// ofContext returns for whom the request in ctx counts, by the user in it.
func (f *flows) ofContext(ctx context.Context) fairness.Flow {
	who, _ := request.UserFrom(ctx)
	return f.of(ctx, who)
}

// clusterOf returns the logical cluster of the request in ctx, or nothing if no cache knows it.
func (f *flows) clusterOf(ctx context.Context) string {
	cluster, _ := f.clusters.Cached(ctx)
	return cluster.String()
}

func (f *flows) of(ctx context.Context, who user.Info) fairness.Flow {
	if who == nil {
		who = &user.DefaultInfo{}
	}
	var flow fairness.Flow
	flow.User, flow.Person = access.CountedAs(ctx, who)
	cluster, inCluster := f.clusters.Cached(ctx)
	switch {
	case slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup):
		flow.Tenant, flow.Privileged, flow.Background = "(administrator) "+who.GetName(), true, true
		flow.Person = ""
	case identity.IsMember(who):
		flow.Tenant, flow.Background = "(member) "+who.GetName(), true
		flow.Person = ""
	case !inCluster:
		flow.Tenant, flow.Background = tenantProcess, true
	case cluster == "":
		flow.Tenant = tenantUnknown
	default:
		flow.Tenant = cluster.String()
	}
	return flow
}

// Usage says how much of a resource a logical cluster has, or all clusters together with clusters.Wildcard.
type Usage interface {
	Stored(cluster logicalcluster.Name, resource schema.GroupResource) storage.Amount
}

// cost returns a function that says how many places a request takes.
func cost(clusters *routing.Filter, usage Usage) func(context.Context, flowcontrol.RequestDigest) int {
	return func(ctx context.Context, digest flowcontrol.RequestDigest) int {
		info := digest.RequestInfo
		return fairness.Places(info, fairness.QueryFrom(ctx), func() (objects, bytes int64) {
			cluster, _ := clusters.Cached(ctx)
			has := usage.Stored(cluster, storedAs(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}))
			return has.Objects, has.Bytes
		})
	}
}

// storedAs returns the resource as which objects of a request's resource are stored.
func storedAs(resource schema.GroupResource) schema.GroupResource {
	if apis.BuiltIn(resource.Group) {
		return resource
	}
	return custom.Resource
}
