package access

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/regent-project/regent/pkg/clusters"
)

// requester holds who has sent a request, whomever it impersonates. The authentication filter fills it. The answer to a
// request whose time is over may be written before that, and meanwhile.
type requester struct{ who atomic.Pointer[user.Info] }

// user returns who it is, or nil.
func (r *requester) user() user.Info {
	if who := r.who.Load(); who != nil {
		return *who
	}
	return nil
}

type requesterKey struct{}

// WithRequester returns a handler whose requests know who has sent them, if Remembering authenticates them. Those that
// ask for it are told for whom they count.
func WithRequester(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sender := &requester{}
		if req.Header.Get(clusters.CountedAsHeader) != "" {
			w = responsewriter.WrapForHTTP1Or2(&tellingAnswer{ResponseWriter: w, to: sender})
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), requesterKey{}, sender)))
	})
}

// tellingAnswer is an answer that says for whom the request counts.
type tellingAnswer struct {
	http.ResponseWriter
	to    *requester
	begun bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *tellingAnswer) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *tellingAnswer) WriteHeader(status int) {
	if who := t.to.user(); who != nil && !t.begun {
		_, person := countedAs(who)
		t.Header().Set(clusters.CountedAsHeader, url.PathEscape(person))
	}
	t.begun = t.begun || status >= http.StatusOK
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *tellingAnswer) Write(p []byte) (int, error) {
	if !t.begun {
		t.WriteHeader(http.StatusOK)
	}
	return t.ResponseWriter.Write(p)
}

var _ responsewriter.UserProvidedDecorator = (*tellingAnswer)(nil)

// Remembering returns an authenticator that notes the first user that it finds for a request. Later ones are of tokens
// that a request asks about.
func Remembering(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		found, ok, err := next.AuthenticateRequest(req)
		if of, there := req.Context().Value(requesterKey{}).(*requester); there && err == nil && ok && found.User != nil {
			of.who.CompareAndSwap(nil, &found.User)
		}
		return found, ok, err
	})
}

// CountedAs returns the names under which limits count the request in ctx, whose user is who: user is one in all
// clusters, and person has all that are told apart by nobody but a cluster, as its service accounts. They are of the
// one who has sent the request: a user that may impersonate others in its own cluster must not use up what they have. A
// member of system:masters vouches for those it names.
func CountedAs(ctx context.Context, who user.Info) (user, person string) {
	if sender, ok := ctx.Value(requesterKey{}).(*requester); ok {
		if sent := sender.user(); sent != nil && !isMaster(sent) {
			who = sent
		}
	}
	return countedAs(who)
}

func countedAs(who user.Info) (user, person string) {
	if who == nil {
		return "", ""
	}
	if home := who.GetExtra()[clusters.IdentityClusterExtra]; len(home) > 0 {
		person = "(accounts of " + strings.Join(home, " ") + ")"
		return person + " " + who.GetName(), person
	}
	if person = who.GetName(); strings.HasPrefix(person, "(") { // no other names begin so
		person = "(user) " + person
	}
	return person, person
}

// Allowed reports whether the user of attributes has a right in a logical cluster.
type Allowed func(ctx context.Context, cluster logicalcluster.Name, attributes authorizer.AttributesRecord) (bool, error)

// Elsewhere returns what decides about rights in another logical cluster than that of the request in its context. All
// such decisions are made by it. Impersonation ends at the border of the cluster that allows it: elsewhere, whoever
// has sent the request needs the right, too. If nobody knows who that is, nobody has it.
func Elsewhere(in authorizer.Authorizer) Allowed {
	ask := func(ctx context.Context, attributes authorizer.AttributesRecord) (bool, error) {
		decision, _, err := in.Authorize(ctx, attributes)
		return err == nil && decision == authorizer.DecisionAllow, err
	}
	return func(ctx context.Context, cluster logicalcluster.Name, attributes authorizer.AttributesRecord) (bool, error) {
		there := clusters.With(ctx, cluster)
		if allowed, err := ask(there, attributes); !allowed || err != nil {
			return false, err
		}
		if here, ok := clusters.From(ctx); ok && here == cluster {
			return true, nil
		}
		sender, _ := ctx.Value(requesterKey{}).(*requester)
		if sender == nil || sender.user() == nil {
			return false, nil
		}
		if attributes.User == sender.user() {
			return true, nil
		}
		attributes.User = sender.user()
		return ask(there, attributes)
	}
}
