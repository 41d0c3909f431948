package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizerunion "k8s.io/apiserver/pkg/authorization/union"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
)

// noWebhook reports whether webhooks have no say about a user: masters may do everything, and members of the
// installation what they need.
func noWebhook(who user.Info) bool {
	return IsMember(who) || isReserved(who) || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// newAuthorizer decides who may do what, in this order: members of system:masters everything, everyone the public
// paths, other members of the installation what they need to read, and users what rbac allows, with the operator's
// webhooks around it. Membership of system:masters is nobody's decision but the operator's: only its members
// may impersonate it.
func newAuthorizer(members *members, rbac authorizer.Authorizer) (authorizer.Authorizer, error) {
	public, err := path.NewAuthorizer(PublicPaths)
	if err != nil {
		return nil, fmt.Errorf("cannot authorize the public paths: %w", err)
	}
	return authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "not-to-masters", Authorizer: authorizer.AuthorizerFunc(nobodyBecomesMaster)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "members", Authorizer: authorizer.AuthorizerFunc(members.rights)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "public-paths", Authorizer: public},
		authorizerunion.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: rbac},
	)
}

// nobodyBecomesMaster refuses to let users impersonate system:masters. In its own cluster an administrator may
// impersonate anybody, and members of that group may do everything in all clusters.
func nobodyBecomesMaster(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if strings.HasPrefix(a.GetVerb(), "impersonate") && a.GetResource() == "groups" && a.GetName() == user.SystemPrivilegedGroup {
		return authorizer.DecisionDeny, "only members of " + user.SystemPrivilegedGroup + " may impersonate it", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
