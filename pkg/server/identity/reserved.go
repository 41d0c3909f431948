package identity

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// isReserved reports whether the user has a name or a group that is reserved for this process's own users.
func isReserved(who user.Info) bool {
	if who == nil || IsMember(who) {
		return false
	}
	reserved := func(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }
	return reserved(who.GetName()) || slices.ContainsFunc(who.GetGroups(), reserved)
}

// notReserved refuses users with reserved names, and service accounts, that another authenticator has authenticated
// than theirs.
type notReserved struct{ authenticator.Request }

// AuthenticateRequest implements authenticator.Request.
func (n notReserved) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := n.Request.AuthenticateRequest(req)
	if err == nil && ok && isReserved(resp.User) {
		return nil, false, fmt.Errorf("user %q of %q: names that begin with %s are the server's own: give this user another name and other groups",
			resp.User.GetName(), resp.User.GetGroups(), ReservedPrefix)
	}
	if err == nil && ok && isServiceAccount(resp.User) {
		return nil, false, serviceAccountFault(resp.User)
	}
	return resp, ok, err
}

const reservedReason = "names that begin with " + ReservedPrefix + " are the server's own and cannot be impersonated"

// WithoutReserved returns an authorizer that refuses to let anybody impersonate this process's own users, including
// members of system:masters.
func WithoutReserved(of authorizer.Authorizer) authorizer.Authorizer { return &reservedNames{of} }

type reservedNames struct{ authorizer.Authorizer }

// Authorize implements authorizer.Authorizer.
func (r *reservedNames) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if isReserved(a.GetUser()) && !IsOwnContext(ctx) {
		return authorizer.DecisionDeny, reservedReason, nil
	}
	return r.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (r *reservedNames) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	if isReserved(a.GetUser()) && !IsOwnContext(ctx) {
		return authorizer.ConditionsAwareDecisionDeny(reservedReason, nil)
	}
	return r.Authorizer.ConditionsAwareAuthorize(ctx, a)
}
