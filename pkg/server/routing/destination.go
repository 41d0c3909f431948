package routing

import (
	"context"
	"errors"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// destination is the logical cluster that a request is for: first as its URL names it, then as it was looked up.
// Filter.Parse puts it into the request's context, and the handlers behind it fill it in, one after the other.
type destination struct {
	path logicalcluster.Path

	// mu guards what follows: upstream answers a request that takes too long while its handlers still run.
	mu sync.Mutex
	// fault is the reason why the request is for no cluster.
	fault error
	// name is the cluster that the path leads to. Empty: it was not looked up yet, or not found.
	name logicalcluster.Name
}

// errMayNotRead says that a cluster was not looked up in storage.
var errMayNotRead = errors.New("the cluster is in no cache, and its user has no rights for which storage would be read")

// resolve returns the cluster that the request is for, and looks it up if that has not been done. Before it reads from
// storage it calls mayRead, if not nil.
func (d *destination) resolve(ctx context.Context, resolver Resolver, mayRead func() error) (logicalcluster.Name, error) {
	if name, err := d.result(); err != nil || name != "" {
		return name, err
	}
	if mayRead == nil {
		mayRead = func() error { return nil }
	}
	name, err := resolver.Resolve(ctx, d.path, mayRead)
	if errors.Is(err, errMayNotRead) {
		// not kept: in an impersonated request, the next user who is asked about may have the right
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.name, d.fault = name, err
	return name, err
}

// result returns what is known so far.
func (d *destination) result() (logicalcluster.Name, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.name, d.fault
}

type destinationKey struct{}

func withDestination(ctx context.Context, d *destination) context.Context {
	return context.WithValue(ctx, destinationKey{}, d)
}

func destinationFrom(ctx context.Context) (*destination, bool) {
	d, ok := ctx.Value(destinationKey{}).(*destination)
	return d, ok
}

// Cached returns the logical cluster of the request in ctx, if the caches know it or it was looked up already. It reads
// nothing from storage. The name is empty if the cluster is not known, or if there is none. Requests for the endpoints
// of the process are in no cluster.
func (f *Filter) Cached(ctx context.Context) (name logicalcluster.Name, inCluster bool) {
	d, ok := destinationFrom(ctx)
	if !ok {
		return "", false
	}
	name, err := d.resolve(ctx, f.Resolver, func() error { return errMayNotRead })
	if err != nil {
		return "", true
	}
	return name, true
}

// Authorizer returns an authorizer that looks up the logical cluster of the request in its context, and then asks next
// with a context that carries the cluster (see clusters.From). If there is no such cluster, the context carries none.
// Then next must allow only what it allows in every cluster, so that users do not learn which clusters exist.
//
// A request for an endpoint of the process is for no cluster, and the context carries clusters.Wildcard: it is about
// the shard as a whole.
//
// A cluster that is in no cache is read from storage if next allows the request without knowing the cluster. Other
// users get a limited number of such reads (see lookups), so that they cannot keep storage busy by guessing names.
func (f *Filter) Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return &clusterAuthorizer{Authorizer: next, resolver: f.Resolver, countedAs: f.CountedAs, lookups: newLookups()}
}

type clusterAuthorizer struct {
	authorizer.Authorizer
	resolver Resolver
	// countedAs is Filter.CountedAs.
	countedAs func(context.Context, user.Info) string
	lookups   *lookups
}

// Authorize implements authorizer.Authorizer.
func (a *clusterAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.Authorizer.Authorize(a.inCluster(ctx, attributes), attributes)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a *clusterAuthorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return a.Authorizer.ConditionsAwareAuthorize(a.inCluster(ctx, attributes), attributes)
}

func (a *clusterAuthorizer) inCluster(ctx context.Context, attributes authorizer.Attributes) context.Context {
	d, ok := destinationFrom(ctx)
	if !ok {
		return clusters.With(ctx, clusters.Wildcard)
	}
	name, err := d.resolve(ctx, a.resolver, func() error {
		if mayLookUp(attributes.GetUser()) && a.lookups.of(a.countedAs(ctx, attributes.GetUser())).Allow() {
			return nil
		}
		if decision, _, err := a.Authorizer.Authorize(ctx, attributes); err != nil || decision != authorizer.DecisionAllow {
			return errMayNotRead
		}
		return nil
	})
	if err != nil {
		return ctx // if the request is allowed, Admit answers it with the error
	}
	audit.AddAuditAnnotation(ctx, AuditCluster, name.String())
	return clusters.With(ctx, name)
}
