package server

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/routing"
)

// handlerChain returns the function that builds the chain of handlers for requests. The chain is upstream's, with ours at three
// places: around it, in front of its authorizer, and behind it.
//
//	answer       a deadline for clients to read the answer
//	body         a deadline for clients to send the body
//	sameOrigin   403 for writes and websockets that another site has a browser ask for
//	traces       414 for long URLs, 429 for many without credentials or with wrong ones: none is in a log
//	split        requests of this process get a chain of their own, without limits
//	Parse        takes the logical cluster off the URL; answers nobody
//	public       public paths get a chain of their own, with limits of the same size but counted apart
//	held         keeps back answers that need no rights until the request has left its place; counts answers by logical cluster
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
//	custom       what the logical cluster defines itself
//	upstream     the APIs
//
// Upstream's chain is wrapped and not rebuilt: it uses signals that upstream does not export, and a copy would miss the filters
// that upstream adds later.
func (r *run) handlerChain(directory routing.Resolver, tokens *tokenFilter, shard *shardCheck, usage usage, tally *fairness.Tally, custom func(http.Handler) http.Handler) func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(apis http.Handler, c *genericapiserver.Config) http.Handler {
		filter := &routing.Filter{
			Resolver: directory, InProcess: isOwn, CountedAs: countedAs, RequestInfo: c.RequestInfoResolver, Serializer: c.Serializer,
		}
		wrong := newGuesses(r.knownHere)
		users := *c // shallow, as upstream copies it: only the chain gets the authorizer that looks up clusters
		users.Authorization.Authorizer = filter.Authorizer(&reservedNames{c.Authorization.Authorizer})
		users.Authentication.Authenticator = access.Remembering(wrong.learning(c.Authentication.Authenticator))
		own := users
		own.MaxRequestsInFlight, own.MaxMutatingRequestsInFlight, own.GoawayChance = 0, 0, 0
		flows := &flows{filter}
		watches := newWatches(r.cfg.Limits.Watches, c.RequestTimeout, flows.ofContext, c.Serializer)
		inner := shard.hold(filter.Admit(withShortHeads(watches.wrap(tokens.wrap(custom(apis))), c.Serializer)), c.Serializer)
		public := users // each chain counts its own requests
		if places := r.cfg.Limits.places(); places > 0 {
			limiter := fairness.New(places, maxWaiting)
			users.FlowControl = &fairness.Control{Limiter: limiter, Flow: flows.ofRequest, Cost: cost(filter, usage), Cluster: flows.clusterOf, Held: flows.holdIn(tally)}
			users.Authorization.Authorizer = &placedImpersonation{users.Authorization.Authorizer, limiter, flows.of, c.RequestTimeout / 4}
		}
		outer := r.tokens.split(
			filter.Parse(genericapiserver.DefaultBuildHandlerChain(inner, &own)),
			filter.Parse(publicOrNot(
				withAnswersHeld(allAnswers, uncounted, genericapiserver.DefaultBuildHandlerChain(inner, &public)),
				withAnswersHeld(errorsOnly, flows.countIn(tally), fairness.WithSeat(endAnswer, fairness.WithQuery(genericapiserver.DefaultBuildHandlerChain(inner, &users)))),
			)),
		)
		return withAnswerDeadline(c.RequestTimeout, connections.WithBodyDeadline(c.RequestTimeout, withSameOrigin(withBoundedTraces(access.WithRequester(outer), c.Serializer, wrong))))
	}
}

// publicOrNot returns a handler that sends requests for public paths to public, and all others to others. Probes must not fail
// because there are many users: a replica would be restarted when it is needed most.
func publicOrNot(public, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if slices.Contains(publicPaths, req.URL.Path) {
			public.ServeHTTP(w, req)
			return
		}
		others.ServeHTTP(w, req)
	})
}

var _ authorizer.Authorizer = (*reservedNames)(nil)
