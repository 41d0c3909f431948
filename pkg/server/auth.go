package server

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
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
)

// The in-process users. Both are in system:masters: only that group is exempt from the limit on requests in flight, and
// a busy shard must not refuse renewals. Their names tell whose writes are fenced.
const (
	// leaderUser is who a term's controllers are.
	leaderUser = "system:regent:leader"
	// replicaUser is who the election and the controllers of every replica are.
	replicaUser = "system:regent:replica"
)

// publicPaths are open to everyone.
var publicPaths = []string{"/livez", "/readyz", "/healthz", "/version"}

// inProcess holds the tokens of the in-process users. They are made anew by every process and never leave it, so a
// request that carries one comes from this very process.
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

// newAuthenticator knows in-process users, client certificates, and bearer tokens of the operator's file. Everyone else
// is anonymous on the public paths, and unauthenticated elsewhere.
func newAuthenticator(p inProcess, clientCA dynamiccertificates.CAContentProvider, tokenFile string) (authenticator.Request, error) {
	methods := []authenticator.Request{
		p.authenticator(),
		x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion),
	}
	if tokenFile != "" {
		tokens, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read --token-auth-file: %w", err)
		}
		methods = append(methods, bearertoken.New(tokens))
	}
	var conditions []apiserver.AnonymousAuthCondition
	for _, p := range publicPaths {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	known := group.NewAuthenticatedGroupAdder(union.New(methods...))
	return union.NewFailOnError(known, anonymous.NewAuthenticator(conditions)), nil
}

// authenticated returns whether a request is by somebody known. It leaves the request as it is: authenticators take
// credentials off the one they are given.
func authenticated(a authenticator.Request) func(*http.Request) bool {
	return func(req *http.Request) bool {
		resp, ok, err := a.AuthenticateRequest(req.Clone(req.Context()))
		return ok && err == nil && resp.User.GetName() != user.Anonymous
	}
}

// newAuthorizer lets members of system:masters do all, and everyone read the public paths. Others may do nothing, until
// a further authorizer is added here.
func newAuthorizer() (authorizer.Authorizer, error) {
	public, err := path.NewAuthorizer(publicPaths)
	if err != nil {
		return nil, fmt.Errorf("cannot authorize the public paths: %w", err)
	}
	return authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "public-paths", Authorizer: public},
	)
}
