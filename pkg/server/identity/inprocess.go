package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ReservedPrefix begins the names of this process's own users. Nobody else may have such a user name or such a group,
// because controllers, audit and the fence trust them.
const ReservedPrefix = "system:regent:"

// The in-process users. Both are in system:masters. The fence tells by the name whose writes must carry a token.
const (
	// LeaderUser is the user of the leader's controllers.
	LeaderUser = ReservedPrefix + "leader"
	// ReplicaUser is the user of the election and of the controllers of every replica.
	ReplicaUser = ReservedPrefix + "replica"
)

// PublicPaths are open to everyone.
var PublicPaths = []string{"/livez", "/readyz", "/healthz", "/version"}

// InProcess holds the tokens of the in-process users. Every process makes its own, and they never leave it: a request
// with such a token comes from this process.
type InProcess struct{ Leader, Replica string }

func newInProcess() InProcess { return InProcess{Leader: rand.Text(), Replica: rand.Text()} }

func (p InProcess) authenticator() authenticator.Request {
	users := map[string]*user.DefaultInfo{}
	for token, name := range map[string]string{p.Leader: LeaderUser, p.Replica: ReplicaUser} {
		users[token] = &user.DefaultInfo{Name: name, UID: name, Groups: []string{user.SystemPrivilegedGroup}}
	}
	return authenticatorfactory.NewFromTokens(users, nil)
}

// isOwn reports whether this process made the request.
func (p InProcess) isOwn(req *http.Request) bool {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	isLeader := subtle.ConstantTimeCompare([]byte(token), []byte(p.Leader))
	isReplica := subtle.ConstantTimeCompare([]byte(token), []byte(p.Replica))
	return isLeader|isReplica == 1
}

type ownKey struct{}

// Split returns a handler that sends requests of this process to own, and all others to others. It marks the former for
// IsOwn, because authentication removes the token.
func (p InProcess) Split(own, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if p.isOwn(req) {
			own.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), ownKey{}, true)))
			return
		}
		others.ServeHTTP(w, req)
	})
}

// IsOwn reports whether this process made a request.
func IsOwn(req *http.Request) bool { return IsOwnContext(req.Context()) }

// IsOwnContext reports the same of the request of a context.
func IsOwnContext(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }
