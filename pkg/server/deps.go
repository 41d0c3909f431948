package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/apis"
)

// runInformers runs all informers.
func runInformers(ctx context.Context, p *parts, i controllers.Informers) {
	for name, informer := range i.All() {
		p.Go("informer of "+name, func() error { return informer.Run(ctx) })
	}
}

// synced returns, by name, what is closed when an informer has read all objects.
func synced(i controllers.Informers) map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, informer := range i.All() {
		out[name] = informer.Synced()
	}
	return out
}

// informersCheck is for /readyz: a replica is ready when its caches are warm. That the API server's own watch caches are
// filled follows, as informers read through them. Upstream's storage readiness hook would make /livez wait for etcd too,
// and then have replicas killed, and gives up after a minute.
func informersCheck(i controllers.Informers) healthz.HealthChecker {
	return healthz.NamedCheck("informers", func(*http.Request) error {
		for name, done := range synced(i) {
			select {
			case <-done:
			default:
				return fmt.Errorf("the informer of %s has not read all objects yet", name)
			}
		}
		return nil
	})
}

// deps returns what the controllers of one term get, and a function that closes the term's connections. Controllers of
// every replica have the zero token and the replica's user. Requests go through each of the wrappers, which may be nil.
// fenced is called when a write was refused because the term is over.
func (r *run) deps(token fence.Token, user string, fenced func(*http.Request), through ...wrapTransport) (controllers.Deps, func(), error) {
	own, err := r.newLoopback(user)
	if err != nil {
		return controllers.Deps{}, nil, err
	}
	if !token.IsZero() {
		own.http.Transport = fence.OnFenced(fenced)(fence.Transport(fence.Of(token))(own.http.Transport))
		own.through(r.cfg.termTransport)
	}
	for _, wrap := range through {
		own.through(wrap)
	}
	clients, err := own.clients()
	if err != nil {
		return controllers.Deps{}, nil, err
	}
	return controllers.Deps{
		Shard:     r.cfg.Shard,
		Replica:   r.name,
		BaseURL:   r.cfg.BaseURL,
		Token:     token,
		Clients:   clients,
		Informers: r.informers,
		Resources: r.resources,
	}, own.close, nil
}

// newLoopback returns the spare, for a term, or a new one.
func (r *run) newLoopback(user string) (*loopback, error) {
	if user == r.spare.token {
		if l := r.spare.take(); l != nil {
			return l, nil
		}
	}
	return newLoopback(r.host, user)
}

// live reads from storage.
type live struct{ reader *apis.Reader }

func (l *live) Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return l.reader.Workspace(inCluster(ctx, cluster), name)
}

func (l *live) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return l.reader.LogicalCluster(inCluster(ctx, cluster))
}

// inCluster leaves nothing of a request's context but its end: the read is the server's own, not part of the request's
// trace, audit or identity.
func inCluster(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return clusters.With(onlyEnd{ctx}, cluster)
}

type onlyEnd struct{ context.Context }

func (onlyEnd) Value(any) any { return nil }
