// Package edge is what each request passes before an API answers it: limits, fairness between tenants, authentication,
// the logical cluster of its URL, and its fencing token. Edge.BuildHandlerChain has the list.
package edge

import (
	"net/http"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/premise"
	"github.com/regent-project/regent/pkg/server/routing"
)

// Edge builds the chain of handlers. All fields but Fencing are needed.
type Edge struct {
	Limits Limits
	// Farewell has clients leave before the replica stops.
	Farewell *connections.Farewell
	// Identity says who asks, and what they may do.
	Identity *identity.Identity
	// Directory finds logical clusters.
	Directory routing.Resolver
	// IsHere returns an error for a logical cluster that is on another shard by now.
	IsHere func(logicalcluster.Name) error
	// FencingRequired says whether the leader's controllers must send a token: false without leader election.
	// Fencing says what happens to their writes without one, and CheckToken whether the term of a token goes on.
	FencingRequired bool
	Fencing         Fencing
	CheckToken      CheckToken
	// Usage says how much a list reads, and Tally is told what was asked for.
	Usage Usage
	Tally *fairness.Tally
	// Known says whether etcd is known to be this shard's. Until then requests for objects are refused.
	Known healthz.HealthChecker
	// Custom returns a handler that serves what logical clusters define themselves, and passes all else on.
	Custom func(next http.Handler) http.Handler
}

// BuildHandlerChain returns the chain of handlers for requests. The chain is upstream's, with ours at three places:
// around it, in front of its authorizer, and behind it.
//
//	farewell     ends connections before the listener closes
//	answer       a deadline for clients to read the answer
//	body         a deadline for clients to send the body
//	sameOrigin   403 for writes and websockets that another site has a browser ask for
//	traces       414 for long URLs, 429 for many without credentials or with wrong ones: none is in a log
//	split        requests of this process get a chain of their own, without limits
//	Parse        takes the logical cluster off the URL; answers nobody
//	public       public paths get a chain of their own, with limits of the same size but counted apart
//	held         keeps back answers that need no rights until the request has left its place; counts answers
//	WithSeat     a request has no place while its client reads the answer slowly
//	WithQuery    what a list asks for, for fairness
//	upstream     401 without credentials, audit, impersonation: each question who may impersonate whom takes a place
//	fairness     a place among those of the request's tenant, or 429
//	Authorizer   looks the cluster up; 403 without rights, whether the cluster exists or not
//	hold         503 until etcd is known to be this shard's
//	Admit        400, 404, 405 and 503 for URLs that lead to no cluster
//	ShortHeads   414 for long queries, 431 for watches with long headers
//	watches      429 if too many watches are open; ends watches whose clients read nothing
//	tokens       412 for writes of a term that is over
//	premises     lets admission say what a creation rests on: storage compares it
//	custom       what the logical cluster defines itself
//	upstream     the APIs
//
// Upstream's chain is wrapped and not rebuilt: it uses signals that upstream does not export, and a copy would miss the
// filters that upstream adds later.
func (e *Edge) BuildHandlerChain(apis http.Handler, c *genericapiserver.Config) http.Handler {
	filter := &routing.Filter{
		Resolver: e.Directory, IsHere: e.IsHere, InProcess: identity.IsOwn, CountedAs: countedAs, RequestInfo: c.RequestInfoResolver, Serializer: c.Serializer,
	}
	wrong := newGuesses(e.Identity.Here)
	users := *c // shallow, as upstream copies it: only the chain gets the authorizer that looks up clusters
	users.Authorization.Authorizer = filter.Authorizer(identity.WithoutReserved(c.Authorization.Authorizer))
	users.Authentication.Authenticator = access.Remembering(wrong.learning(c.Authentication.Authenticator))
	own := users
	own.MaxRequestsInFlight, own.MaxMutatingRequestsInFlight, own.GoawayChance = 0, 0, 0
	flows := &flows{filter}
	watches := newWatches(e.Limits.Watches, c.RequestTimeout, flows.ofContext, c.Serializer)
	tokens := newTokenFilter(e.FencingRequired, e.Fencing, e.CheckToken, access.Elsewhere(c.Authorization.Authorizer), c.Serializer)
	inner := withObjectsHeld(e.Known, filter.Admit(withShortHeads(watches.wrap(tokens.wrap(withPremises(e.Custom(apis)))), c.Serializer)), c.Serializer)
	public := users // each chain counts its own requests
	if places := e.Limits.Places(); places > 0 {
		limiter := fairness.New(places, maxWaiting)
		users.FlowControl = &fairness.Control{
			Limiter: limiter, Flow: flows.ofRequest, Cost: cost(filter, e.Usage), Cluster: flows.clusterOf, Held: flows.holdIn(e.Tally),
		}
		users.Authorization.Authorizer = &placedImpersonation{users.Authorization.Authorizer, limiter, flows.of, c.RequestTimeout / 4}
	}
	ofUsers := inOrder(genericapiserver.DefaultBuildHandlerChain(inner, &users),
		func(next http.Handler) http.Handler { return withAnswersHeld(errorsOnly, flows.countIn(e.Tally), next) },
		func(next http.Handler) http.Handler { return fairness.WithSeat(endAnswer, next) },
		fairness.WithQuery,
	)
	ofPublic := withAnswersHeld(allAnswers, uncounted, genericapiserver.DefaultBuildHandlerChain(inner, &public))
	ofOthers := filter.Parse(publicOrNot(ofPublic, ofUsers))
	ofProcess := filter.Parse(genericapiserver.DefaultBuildHandlerChain(inner, &own))
	return inOrder(e.Identity.InProcess.Split(ofProcess, ofOthers),
		e.Farewell.Serving,
		func(next http.Handler) http.Handler { return withAnswerDeadline(c.RequestTimeout, next) },
		func(next http.Handler) http.Handler { return connections.WithBodyDeadline(c.RequestTimeout, next) },
		withSameOrigin,
		func(next http.Handler) http.Handler {
			return withBoundedTraces(access.WithRequester(next), c.Serializer, wrong)
		},
	)
}

// inOrder returns a handler that passes requests to the wrappers in their order, and then to last.
func inOrder(last http.Handler, wrappers ...func(http.Handler) http.Handler) http.Handler {
	for _, wrap := range slices.Backward(wrappers) {
		last = wrap(last)
	}
	return last
}

// withPremises lets admission say what a creation rests on.
func withPremises(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			req = req.WithContext(premise.With(req.Context()))
		}
		next.ServeHTTP(w, req)
	})
}

// publicOrNot returns a handler that sends requests for public paths to public, and all others to others. Probes must
// not fail because there are many users: a replica would be restarted when it is needed most.
func publicOrNot(public, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if slices.Contains(identity.PublicPaths, req.URL.Path) {
			public.ServeHTTP(w, req)
			return
		}
		others.ServeHTTP(w, req)
	})
}
