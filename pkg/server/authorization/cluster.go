package authorization

import (
	"context"
	"maps"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// clusterKey is the key, in spec.extra of a SubjectAccessReview, under which a webhook finds the name of the request's
// logical cluster. kcp has the same.
const clusterKey = "authorization.kcp.io/cluster-name"

// inCluster returns the attributes with which to ask a webhook: the user has the request's logical cluster among the
// extra. It returns false if webhooks are not asked about the request.
func inCluster(ctx context.Context, attributes authorizer.Attributes) (authorizer.Attributes, bool) {
	name, known := clusters.From(ctx)
	who := attributes.GetUser()
	if !known || name == clusters.Wildcard || clusters.IsSystem(name) || who == nil || !isWhole(name, who) {
		return nil, false
	}
	extra := maps.Clone(who.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[clusterKey] = []string{name.String()} // whatever the user's own extra says
	return inside{attributes, &user.DefaultInfo{Name: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: extra}}, true
}

// limiting are the extras that limit an identity to less than its user's rights. RBAC refuses who has one, and webhooks
// would not know.
var limiting = []string{"authentication.kcp.io/scopes", "authorization.kcp.io/warrant"}

// isWhole reports whether the user's name means in the cluster what it says. A service account of another cluster is
// somebody else than one of the same name, and webhooks need not know that.
func isWhole(cluster logicalcluster.Name, who user.Info) bool {
	extra := who.GetExtra()
	for _, key := range limiting {
		if len(extra[key]) > 0 {
			return false
		}
	}
	home := extra[clusters.IdentityClusterExtra]
	return len(home) == 0 || slices.Equal(home, []string{cluster.String()})
}

// inside are attributes of another user.
type inside struct {
	authorizer.Attributes
	who user.Info
}

// GetUser implements authorizer.Attributes.
func (i inside) GetUser() user.Info { return i.who }
