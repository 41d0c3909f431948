package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/routing"
)

// handlerChain returns what builds the chain that each request passes. It is upstream's, with ours at three places; each of
// them has something to say only about requests that have come as far.
//
//	body         a deadline for what clients send
//	split        requests that this process makes itself go through a chain of their own, without limits
//	Parse        takes the logical cluster off the URL; answers nobody
//	upstream     401 without credentials, audit, impersonation, 429 beyond the limits on requests in flight
//	Authorizer   looks the cluster up; 403 without rights, whether the cluster exists or not
//	Admit        400, 404, 405 and 503 for URLs that lead to no cluster
//	starts       429 for watches if too many begin at once
//	tokens       412 for writes of a term that is over
//	upstream     the APIs
func (r *run) handlerChain(directory routing.Resolver, tokens *tokenFilter) func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(apis http.Handler, c *genericapiserver.Config) http.Handler {
		filter := &routing.Filter{
			Resolver: directory, InProcess: isOwn, RequestInfo: c.RequestInfoResolver, Serializer: c.Serializer,
		}
		users := *c // shallow, as upstream copies it: only the chain gets the authorizer that looks clusters up
		users.Authorization.Authorizer = filter.Authorizer(&reservedNames{c.Authorization.Authorizer})
		own := users
		own.MaxRequestsInFlight, own.MaxMutatingRequestsInFlight, own.GoawayChance = 0, 0, 0
		inner := filter.Admit(newWatchStarts(c.RequestTimeout, c.Serializer).wrap(tokens.wrap(apis)))
		outer := r.tokens.split(
			filter.Parse(genericapiserver.DefaultBuildHandlerChain(inner, &own)),
			filter.Parse(genericapiserver.DefaultBuildHandlerChain(inner, &users)),
		)
		return withBodyDeadline(c.RequestTimeout, outer)
	}
}

var _ authorizer.Authorizer = (*reservedNames)(nil)
