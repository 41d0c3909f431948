package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/logs"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/workspace"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
	apisadmission "github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/apis/review"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/endpoints"
	"github.com/regent-project/regent/pkg/server/exports"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/pkg/server/survey"
	"github.com/regent-project/regent/pkg/server/terms"
	"github.com/regent-project/regent/pkg/server/ui"
)

// api is upstream's API server with all that is served.
type api struct {
	*genericapiserver.GenericAPIServer
	customs *custom.Server
}

// newAPI returns upstream's API server with our resources, handler chain, admission, endpoints and checks. From then on
// this process can call it.
func (s *Server) newAPI(store *store, caches *caches, elections *elections, terms *terms.Runner, survey *survey.Survey) (*api, error) {
	c := s.generic
	openapi.Configure(c, apis.Scheme)
	c.AdmissionControl = s.admission(store, caches, &access.Escalation{Stored: s.identity.Stored, Authorizer: c.Authorization.Authorizer})
	customs, err := s.newCustoms(store, c)
	if err != nil {
		return nil, err
	}
	definitions, tally := custom.NewUnion(caches.own, caches.bound), fairness.NewTally()
	c.BuildHandlerChainFunc = (&edge.Edge{
		Limits: s.cfg.Limits, Farewell: &s.farewell, Identity: s.identity, Directory: caches.directory, IsHere: caches.directory.IsHere, FencingRequired: s.cfg.EnableLeaderElection, Fencing: s.cfg.Fencing,
		CheckToken: store.CheckToken, Usage: store.Client, Tally: tally, Known: store.shard,
		Custom: func(next http.Handler) http.Handler { return customs.Wrap(definitions, apis.BuiltIn, next) },
	}).BuildHandlerChain
	c.AddReadyzChecks(unhurried{store.etcd}, store.space, store.shard, informersCheck(caches.informers), historyCheck(store.Client))
	if store.keys != nil {
		c.AddReadyzChecks(store.keys.Plugins())
	}
	c.AddHealthChecks(supervisorCheck(terms))
	recipients, err := bundle.ParseRecipients(s.cfg.BackupRecipients)
	if err != nil {
		return nil, fmt.Errorf("for whom backups are sealed: %w", err)
	}
	server, err := openapi.New(c.Complete(nil), "regent")
	if err != nil {
		return nil, err
	}
	store.ServePairs(s.pairs(store, caches))
	if err := store.builtIn.Install(server, s.shards(caches), s.virtual(caches)...); err != nil {
		return nil, err
	}
	server.RegisterDestroyFunc(func() {
		customs.EndCalls()
		store.customs.Close()
	})
	s.addEndpoints(server.Handler.NonGoRestfulMux, store, (&endpoints.Endpoints{
		Shard: s.cfg.Shard, Replica: s.name, Lease: s.cfg.Election.Namespace + "/" + s.cfg.Election.Name, Leadership: elections.leadership(), CheckToken: store.CheckToken,
		Survey: survey, Raise: store.shard.Raise, Identity: s.identity, Informers: caches.informers, Others: caches.others, Stored: store.Client, Freezer: store.Client, Elsewhere: access.Elsewhere(identity.WithoutReserved(c.Authorization.Authorizer)), Formats: store.shard.Formats,
		Live: caches.live, NowhereElse: caches.nowhereElse(), BaseURL: s.cfg.BaseURL, Seen: store.SeenRevision, RootCA: s.rootCA, InShard: store.Client, Recipients: recipients, Tally: tally, Authorizer: identity.WithoutReserved(c.Authorization.Authorizer), Serializer: c.Serializer,
		Moves: s.newMoves(store, caches), Changing: store.Client,
		Exports: exports.Answers{Reader: caches.live.reader, Authorizer: fromOutside(c.Authorization.Authorizer), Informers: caches.informers, Process: s.instance},
	}).Handlers())
	server.ShutdownTimeout = (s.cfg.ShutdownTimeout - s.cfg.ShutdownDelay) / 2
	s.api.Serve(server.Handler)
	server.Handler.FullHandlerChain = s.connections.Serving(server.Handler.FullHandlerChain)
	return &api{server, customs}, nil
}

// addEndpoints adds what is served beside the APIs.
func (s *Server) addEndpoints(mux *mux.PathRecorderMux, store *store, handlers map[string]http.Handler) {
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	mux.Handle(configzPath, s.configz())
	mux.HandlePrefix(ui.Path, ui.Handler(s.cfg.Docs))
	mux.Handle("/readyz/certificates", s.keys)
	if store.keys != nil {
		mux.Handle("/readyz/encryption-config", store.keys)
	}
	if s.cfg.Profiling {
		installProfiling(mux)
	}
}

// shards returns what tables tell of shards.
func (s *Server) shards(caches *caches) resource.Shards {
	out := resource.Shards{Own: s.cfg.Shard}
	if caches.others != nil {
		out.Answers = caches.others.Answers
	}
	return out
}

// virtual returns what is served and not stored.
func (s *Server) virtual(caches *caches) []resource.Virtual {
	tokens := core.Tokens{
		Issuer: s.identity.Issuer, Accounts: caches.live.reader,
		MaxLifetime: cmp.Or(s.cfg.ServiceAccounts.MaxTokenLifetime, identity.DefaultMaxTokenLifetime),
	}
	reviews := review.Tokens{Authenticator: s.identity.Authenticator, Audiences: s.identity.Issuer.Audiences, Hidden: identity.IsHidden}
	access := review.Access{Authorizer: s.identity.Authorizer, Rights: s.identity.Rights}
	return append(access.Reviews(), tokens.Subresource(), reviews.Reviews(), review.Self())
}

// admission returns the admission plugins that every write passes.
func (s *Server) admission(store *store, caches *caches, escalation *access.Escalation) admission.Interface {
	return admission.NewChainHandler(
		&apisadmission.NamespaceLifecycle{Namespaces: namespaces{caches.informers.Namespaces, caches.live}},
		apisadmission.Creator{},
		s.builtIn(store),
		apisadmission.Names{},
		&apisadmission.TenancyProtection{Leader: identity.LeaderUser},
		&apisadmission.ClusterOwner{Cached: caches.informers.Workspaces.Get, Stored: caches.live.Workspace},
		escalation,
		&apisadmission.Aggregated{Count: func(cluster logicalcluster.Name) int {
			return len(caches.informers.ClusterRoles.ByIndex(controllers.ByAggregating, cluster.String()))
		}},
		&apisadmission.Owners{Authorizer: escalation.Authorizer, Resource: resourceIn(caches.informers)},
		&apisadmission.Groups{BuiltIn: apis.BuiltIn},
		&apisadmission.Conversions{None: s.cfg.ConversionWebhooks.Empty(), AllowsHost: s.cfg.ConversionWebhooks.AllowsHost},
		s.bindings(caches, escalation.Authorizer),
		&routing.Gate{Directory: caches.directory},
		&apisadmission.Depth{Max: s.cfg.Limits.WorkspaceDepth, LogicalCluster: caches.directory.LogicalCluster},
		&apisadmission.Quota{
			Default: apisadmission.QuotaLimits{Objects: s.cfg.Limits.ObjectsPerCluster, Bytes: s.cfg.Limits.BytesPerCluster, Workspaces: s.cfg.Limits.WorkspacesPerCluster},
			Exempt:  []string{identity.LeaderUser, identity.ReplicaUser},
			Room:    store.space.Room,
			Stored: func(cluster logicalcluster.Name) (objects, bytes int64) {
				has := store.StoredIn(cluster)
				return has.Objects, has.Bytes
			},
			Workspaces: func(cluster logicalcluster.Name) int64 {
				return store.Stored(cluster, tenancyv1alpha1.Resource("workspaces")).Objects
			},
			LogicalCluster: func(cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, bool) {
				return caches.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
			},
		},
		&apisadmission.ElectionLease{Cluster: clusters.SystemAdmin, Namespace: s.cfg.Election.Namespace, Names: []string{s.cfg.Election.Name, ElectionsLease}},
		&edge.DryRunFence{Check: store.CheckToken},
		custom.Terminating{},
	)
}

// builtIn returns what gives new logical clusters built-in objects. Until the operator says that no replica of an
// earlier version comes back, nothing does.
func (s *Server) builtIn(store *store) *apisadmission.BuiltIn {
	return &apisadmission.BuiltIn{
		Shared:   func() bool { _, stored := store.shard.Formats(); return stored.Format >= format.BuiltIn },
		Revision: store.SeenRevision,
		RootCA:   s.rootCA,
		URL:      func(cluster logicalcluster.Name) string { return s.cfg.BaseURL + clusters.RequestPath(cluster) },
	}
}

// pairs returns which Workspaces come and go with their LogicalClusters.
func (s *Server) pairs(store *store, caches *caches) storage.Pairs {
	var others *controllers.Shards
	if caches.others != nil {
		others = caches.others.Shards()
	}
	builtIn := s.builtIn(store)
	return workspace.NewPairs(s.cfg.Shard, s.cfg.BaseURL, caches.informers, others, func(lc *corev1alpha1.LogicalCluster) {
		builtIn.Complete(clusters.KeyOf(lc).Cluster, lc)
	})
}

// installProfiling adds the endpoints for profiles and for the log's verbosity. Only members of system:masters may use
// them.
func installProfiling(mux *mux.PathRecorderMux) {
	routes.Profiling{}.Install(mux)
	routes.DebugFlags{}.Install(mux, "v", routes.StringFlagPutHandler(logs.GlogSetter))
}

// historyCheck fails once etcd's revision or cluster id has gone back. This replica's caches then belong to another
// history.
func historyCheck(client *storage.Client) healthz.HealthChecker {
	return healthz.NamedCheck("etcd-history", func(*http.Request) error { return client.Fault() })
}

// supervisorTimeout is how long the supervisor may take to answer the check.
const supervisorTimeout = 2 * time.Second

// supervisorCheck fails only if the supervisor of this process's controllers hangs, which only a restart mends. It does
// not depend on who leads or on how the controllers are doing: the replica serves anyway.
func supervisorCheck(probe interface{ Ping(context.Context) error }) healthz.HealthChecker {
	return unhurried{healthz.NamedCheck("supervisor", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), supervisorTimeout)
		defer cancel()
		return probe.Ping(ctx)
	})}
}

// unhurried is a check that goes on when its caller hangs up, until its own timeout. A caller that hangs up says
// nothing about what is checked, but the log would report a failed check.
type unhurried struct{ healthz.HealthChecker }

// Check implements healthz.HealthChecker.
func (u unhurried) Check(req *http.Request) error {
	return u.HealthChecker.Check(req.WithContext(context.WithoutCancel(req.Context())))
}
