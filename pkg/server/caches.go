package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis"
	apisadmission "github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/exports"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/loopback"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/storage"
)

// caches are the replica's view of the shard, on leaders and standbys alike. The informers read storage. What the
// replica asks for besides, it asks of its own API, as its own user.
type caches struct {
	client    *loopback.Client
	clients   controllers.Clients
	resources []controllers.Resource
	informers controllers.Informers
	// live reads what the informers do not have yet. directory resolves the paths of logical clusters.
	live      *live
	directory *routing.Directory
	// own and bound are what logical clusters define, and what they have bound.
	own   *custom.Own
	bound *custom.Bindings
	// others reads the other shards of the installation. Nil: nobody can be called, because the key of the
	// authority is elsewhere.
	others *shards.Reader
	// homes says which of the other shards has a logical cluster. Nil: others is nil.
	homes *shards.Homes
	// offers asks other shards about their exports. Nil: others is nil.
	offers *exports.Others
}

// newCaches returns caches that read nothing yet.
func (s *Server) newCaches(store *store) (*caches, error) {
	c := &caches{client: loopback.New(&s.api, s.identity.InProcess.Replica), live: &live{store.builtIn.Reader()}}
	var err error
	if c.clients, err = c.client.Clients(); err != nil {
		return nil, err
	}
	for _, resource := range apis.Resources() {
		c.resources = append(c.resources, controllers.Resource(resource))
	}
	var source controllers.Source = c.live.reader
	if s.cfg.informerSource != nil {
		source = s.cfg.informerSource(source)
	}
	c.informers = controllers.NewInformers(source, c.resources)
	c.own = custom.NewOwn(c.informers.Definitions, store.customs.Contents, c.live.definition)
	c.bound = custom.NewBindings(c.informers, store.customs.Contents, c.live.bindings())
	c.directory = &routing.Directory{Shard: s.cfg.Shard, RootShard: s.cfg.rootShard(), Workspaces: c.informers.Workspaces, LogicalClusters: c.informers.LogicalClusters, Live: c.live}
	if s.keys.Members() != nil {
		cfg := shards.Config{Own: s.cfg.Shard, Root: pki.RootShard{Name: s.cfg.rootShard()}, Keys: s.keys.ForMembers, Members: c.informers.Shards}
		if s.cfg.Membership != nil {
			cfg.Root.URLs = s.cfg.Membership.Root.URLs
		}
		c.others = shards.New(cfg)
		c.offers = exports.NewOthers(c.others)
		c.others.Shards().Offers = c.offers
		c.homes = shards.NewHomes(shards.HomesConfig{
			Own: s.cfg.Shard, Root: s.cfg.rootShard(), Members: c.others.Members, Heard: c.others.Peers, Live: c.others, Here: c.live,
			Memory: &confirmed{client: store.Etcd(), prefix: store.Prefix()},
		})
		c.others.Shards().Homes = c.homes
	}
	return c, nil
}

// find returns where a path leads, in this shard or in another one.
func (c *caches) find(ctx context.Context, path logicalcluster.Path) (apisadmission.Place, error) {
	cluster, err := c.directory.Resolve(ctx, path, func() error { return nil })
	if err == nil || c.homes == nil || apierrors.IsServiceUnavailable(err) {
		return apisadmission.Place{Cluster: cluster}, err
	}
	shard, cluster, err := c.homes.Find(ctx, path)
	switch {
	case apierrors.IsNotFound(err):
		err = routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	case err != nil:
		err = routing.NewUnavailable(fmt.Sprintf("cannot find logical cluster %q at the moment: %v", path, err))
	}
	if shard == c.directory.Shard {
		shard = ""
	}
	return apisadmission.Place{Shard: shard, Cluster: cluster}, err
}

// epochs returns what the store knows of epochs.
func (c *caches) epochs() storage.Epochs {
	return storage.Epochs{Of: c.epoch, Resume: c.resume, MayMove: c.others != nil, Await: c.awaitEpochs, Follow: c.followEpochs}
}

func (c *caches) awaitEpochs(ctx context.Context) error {
	select {
	case <-c.informers.LogicalClusters.Synced():
		return nil
	case <-ctx.Done():
		return routing.NewUnavailable("this replica has not read all logical clusters yet")
	}
}

func (c *caches) followEpochs(is func(_ logicalcluster.Name, epoch int64, change storage.Change)) (stop func()) {
	return c.informers.LogicalClusters.Follow(clusters.Range{}, func(old, now *corev1alpha1.LogicalCluster) {
		if now == nil || clusters.IsComing(now) {
			return
		}
		epoch, change := clusters.EpochOf(now), storage.Unchanged
		switch {
		case clusters.HasMoved(now):
			change = storage.HasLeft
		case epoch > 0 && (old == nil || clusters.IsComing(old)):
			change = storage.HasCome
		}
		is(logicalcluster.From(now), epoch, change)
	})
}

// resume returns how watches of a logical cluster go on that has moved here, as this process has heard of it.
func (c *caches) resume(cluster logicalcluster.Name) storage.Resume {
	lc, ok := c.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	if !ok {
		return storage.Resume{}
	}
	return storage.ResumeOf(lc)
}

func (c *caches) epoch(ctx context.Context, cluster logicalcluster.Name) (int64, error) {
	lc, ok := c.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	if ok { // also one that comes: it has its epoch from the first moment on
		return clusters.EpochOf(lc), nil
	}
	lc, err := c.live.LogicalCluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, routing.NewUnavailable(fmt.Sprintf("cannot read logical cluster %q at the moment: %v", cluster, err))
	}
	return clusters.EpochOf(lc), nil
}

// nowhereElse returns shards.Homes.NowhereElse, and nil if there are no other shards.
func (c *caches) nowhereElse() func(context.Context, logicalcluster.Name) error {
	if c.homes == nil {
		return nil
	}
	return c.homes.NowhereElse
}

// newMoves returns what takes the steps of logical clusters that move.
func (s *Server) newMoves(store *store, caches *caches) *moves.Moves {
	m := &moves.Moves{Shard: s.cfg.Shard, Store: store.Client, Live: caches.live, Bindings: storedBindings{caches.informers.APIResourceSchemas, caches.live.bindings(), caches.clients}, BaseURL: s.cfg.BaseURL, Seen: store.SeenRevision, RootCA: s.rootCA}
	if caches.others != nil {
		m.Others, m.NowhereElse = caches.others, caches.homes.NowhereElse
	}
	return m
}

// storedBindings implements moves.Bindings.
type storedBindings struct {
	schemas *clusters.Informer[*apisv1alpha1.APIResourceSchema]
	live    custom.LiveBindings
	clients controllers.Clients
}

func (b storedBindings) Bindings(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error) {
	return b.live.List(ctx, cluster)
}

func (b storedBindings) Schema(ctx context.Context, name string) (*apisv1alpha1.APIResourceSchema, error) {
	if s, ok := b.schemas.Get(clusters.Key{Cluster: clusters.BoundSchemas, Name: name}); ok {
		return s, nil
	}
	return b.live.Schema(ctx, clusters.BoundSchemas, name)
}

func (b storedBindings) Keep(ctx context.Context, copied *apisv1alpha1.APIResourceSchema) error {
	return b.clients.KeepSchemaCopy(ctx, copied, "move")
}

// serveBuiltIn has the store show built-in objects, until the returned function is called.
func (s *Server) serveBuiltIn(store *store, caches *caches) (stop func()) {
	leader := func(ctx context.Context) bool {
		who, ok := request.UserFrom(ctx)
		return ok && who.GetName() == identity.LeaderUser
	}
	return store.ServeBuiltIn(storage.BuiltIn{
		Cached: caches.directory.LogicalCluster, Stored: caches.live.LogicalCluster, Empties: leader, RootCA: s.rootCA,
		Follow: func(gone func(*corev1alpha1.LogicalCluster)) (stop func()) {
			return caches.informers.LogicalClusters.Follow(clusters.Range{}, func(old, now *corev1alpha1.LogicalCluster) {
				if now == nil {
					gone(old)
				}
			})
		},
	})
}

// sources are what identities are read from.
func (c *caches) sources() identity.Sources {
	return identity.Sources{Informers: c.informers, Reader: c.live.reader, Others: c.others, Homes: c.homes}
}

// runInformers runs all informers until the lifetime ends.
func runInformers(l *lifetime, i controllers.Informers) {
	for name, informer := range i.All() {
		l.Go("informer of "+name, func() error { return informer.Run(l.ctx) })
	}
}

// synced returns for each informer, by name, a channel that is closed when the informer has read all objects.
func synced(i controllers.Informers) map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, informer := range i.All() {
		out[name] = informer.Synced()
	}
	return out
}

// informersCheck is part of /readyz: a replica is ready when its informers are warm. The API server's watch caches are
// filled by then, because the informers read through them. Upstream's storage readiness hook is not used: it is part of
// /livez too, so a replica without etcd would be killed, and it gives up after a minute.
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

// live reads from storage, where caches may be behind.
type live struct{ reader *apis.Reader }

func (l *live) Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return l.reader.Workspace(clusters.WithOnly(ctx, cluster), name)
}

func (l *live) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return l.reader.LogicalCluster(clusters.WithOnly(ctx, cluster))
}

func (l *live) definition(ctx context.Context, cluster logicalcluster.Name, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return l.reader.Definition(clusters.WithOnly(ctx, cluster), name)
}

// bindings reads from storage what logical clusters have bound.
func (l *live) bindings() custom.LiveBindings {
	return custom.LiveBindings{
		List: func(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error) {
			return l.reader.Bindings(clusters.WithOnly(ctx, cluster))
		},
		Schema: func(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
			return l.reader.Schema(clusters.WithOnly(ctx, cluster), name)
		},
	}
}

// namespaces finds namespaces for admission.NamespaceLifecycle.
type namespaces struct {
	informer *clusters.Informer[*corev1.Namespace]
	live     *live
}

func (n namespaces) Cached(cluster logicalcluster.Name, name string) (*corev1.Namespace, bool) {
	return n.informer.Get(clusters.Key{Cluster: cluster, Name: name})
}

func (n namespaces) Live(ctx context.Context, cluster logicalcluster.Name, name string) (*corev1.Namespace, error) {
	return n.live.reader.Namespace(clusters.WithOnly(ctx, cluster), name)
}

// Leaving returns true also for a cluster that has no LogicalCluster any more. Permanent clusters never leave.
func (n namespaces) Leaving(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if clusters.IsPermanent(cluster) {
		return false, nil
	}
	lc, err := n.live.LogicalCluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return !lc.DeletionTimestamp.IsZero(), nil
}
