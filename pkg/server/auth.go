package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/regent-project/regent/pkg/server/authentication"
)

// reservedPrefix begins the names of this process's own users. Nobody else may have such a user name or such a group, because
// controllers, audit and the fence trust them.
const reservedPrefix = "system:regent:"

// The in-process users. Both are in system:masters. The fence tells by the name whose writes must carry a token.
const (
	// leaderUser is the user of the leader's controllers.
	leaderUser = reservedPrefix + "leader"
	// replicaUser is the user of the election and of the controllers of every replica.
	replicaUser = reservedPrefix + "replica"
)

// publicPaths are open to everyone.
var publicPaths = []string{"/livez", "/readyz", "/healthz", "/version"}

// inProcess holds the tokens of the in-process users. Every process makes its own, and they never leave it: a request with such
// a token comes from this process.
type inProcess struct{ leader, replica string }

func newInProcess() inProcess { return inProcess{leader: rand.Text(), replica: rand.Text()} }

func (p inProcess) authenticator() authenticator.Request {
	users := map[string]*user.DefaultInfo{}
	for token, name := range map[string]string{p.leader: leaderUser, p.replica: replicaUser} {
		users[token] = &user.DefaultInfo{Name: name, UID: name, Groups: []string{user.SystemPrivilegedGroup}}
	}
	return authenticatorfactory.NewFromTokens(users, nil)
}

// made reports whether this process made the request.
func (p inProcess) made(req *http.Request) bool {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	isLeader := subtle.ConstantTimeCompare([]byte(token), []byte(p.leader))
	isReplica := subtle.ConstantTimeCompare([]byte(token), []byte(p.replica))
	return isLeader|isReplica == 1
}

type ownKey struct{}

// split returns a handler that sends requests of this process to own, and all others to others. It marks the former for isOwn,
// because authentication removes the token.
func (p inProcess) split(own, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if p.made(req) {
			own.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), ownKey{}, true)))
			return
		}
		others.ServeHTTP(w, req)
	})
}

func isOwn(req *http.Request) bool { return isOwnContext(req.Context()) }

func isOwnContext(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// isReserved reports whether the user has a name or a group that is reserved for this process's own users.
func isReserved(who user.Info) bool {
	if who == nil || isMember(who) {
		return false
	}
	reserved := func(name string) bool { return strings.HasPrefix(name, reservedPrefix) }
	return reserved(who.GetName()) || slices.ContainsFunc(who.GetGroups(), reserved)
}

// notReserved refuses users with reserved names, and service accounts, that another authenticator has authenticated than theirs.
type notReserved struct{ authenticator.Request }

// AuthenticateRequest implements authenticator.Request.
func (n notReserved) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := n.Request.AuthenticateRequest(req)
	if err == nil && ok && isReserved(resp.User) {
		return nil, false, fmt.Errorf("user %q of %q: names that begin with %s are the server's own: give this user another name and other groups",
			resp.User.GetName(), resp.User.GetGroups(), reservedPrefix)
	}
	if err == nil && ok && isServiceAccount(resp.User) {
		return nil, false, serviceAccountFault(resp.User)
	}
	return resp, ok, err
}

const reservedReason = "names that begin with " + reservedPrefix + " are the server's own and cannot be impersonated"

// reservedNames refuses to let anybody impersonate this process's own users, including members of system:masters.
type reservedNames struct{ authorizer.Authorizer }

// Authorize implements authorizer.Authorizer.
func (r *reservedNames) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if isReserved(a.GetUser()) && !isOwnContext(ctx) {
		return authorizer.DecisionDeny, reservedReason, nil
	}
	return r.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (r *reservedNames) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	if isReserved(a.GetUser()) && !isOwnContext(ctx) {
		return authorizer.ConditionsAwareDecisionDeny(reservedReason, nil)
	}
	return r.Authorizer.ConditionsAwareAuthorize(ctx, a)
}

// newAuthenticator accepts in-process users, other members of the installation, client certificates, tokens of service
// accounts, bearer tokens from the operator's file, and those that configured knows. Everyone else is anonymous on the
// public paths, and unauthenticated elsewhere. here accepts the same users, except those whom a webhook knows, and does
// not say of what groups all of them are.
func newAuthenticator(
	p inProcess, members *membersGate, clientCA dynamiccertificates.CAContentProvider, accounts authenticator.Token, tokenFile string,
	configured *authentication.Authentication,
) (all, here authenticator.Request, err error) {
	methods := []authenticator.Request{
		p.authenticator(),
		// Before all tokens, as in Kubernetes, and as at a front, which knows certificates only: one request is of one user, whichever way it takes.
		notReserved{x509.NewDynamic(clientCA.VerifyOptions, x509.UserConversionFunc(members.noMembers))},
		bearertoken.New(accounts),
	}
	if tokenFile != "" {
		tokens, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read --token-auth-file: %w", err)
		}
		methods = append(methods, notReserved{bearertoken.New(tokens)})
	}
	byKeys, asking := configured.Methods()
	for _, method := range byKeys {
		methods = append(methods, notReserved{method})
	}
	ofMembers, err := members.authenticator()
	if err != nil {
		return nil, nil, err
	}
	here = union.New(append([]authenticator.Request{ofMembers}, methods...)...)
	for _, method := range asking { // last, because a webhook is told tokens that nobody knows
		methods = append(methods, notReserved{method})
	}
	known := union.New(ofMembers, group.NewAuthenticatedGroupAdder(union.New(methods...)))
	return union.NewFailOnError(known, configured.Anonymous()), here, nil
}

// noWebhook reports whether webhooks have no say about a user: masters may do everything, and members of the installation what they need.
func noWebhook(who user.Info) bool {
	return isMember(who) || isReserved(who) || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// newAuthorizer decides who may do what, in this order: members of system:masters everything, everyone the public paths, other members of the
// installation what they need to read, and users what rbac allows, with the operator's webhooks around it. Who is in system:masters is nobody's
// decision but the operator's: only its members may impersonate it.
func newAuthorizer(members *membersGate, rbac authorizer.Authorizer) (authorizer.Authorizer, error) {
	public, err := path.NewAuthorizer(publicPaths)
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

// nobodyBecomesMaster refuses to let users impersonate system:masters. In its own cluster an administrator may impersonate anybody, and
// members of that group may do everything in all clusters.
func nobodyBecomesMaster(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if strings.HasPrefix(a.GetVerb(), "impersonate") && a.GetResource() == "groups" && a.GetName() == user.SystemPrivilegedGroup {
		return authorizer.DecisionDeny, "only members of " + user.SystemPrivilegedGroup + " may impersonate it", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
