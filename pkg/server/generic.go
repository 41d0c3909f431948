package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/component-base/logs"

	// Metrics of the clients and queues in this process, on /metrics.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// newGenericConfig returns all of upstream's configuration that needs no storage. It opens the listener.
func (s *Server) newGenericConfig(ctx context.Context) (*genericapiserver.Config, error) {
	c := genericapiserver.NewConfig(codecs())
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	// Upstream's default is a hash of the host's name, which replicas on one machine share.
	c.APIServerID = "regent-" + s.name
	// With upstream's profiling DELETE /metrics empties what is only set once, or when something changes.
	c.EnableProfiling = false
	c.ShutdownWatchTerminationGracePeriod = watchGrace
	c.ShutdownDelayDuration = s.cfg.ShutdownDelay
	s.cfg.Limits.applyTo(c)
	if err := s.cfg.Audit.ApplyTo(c); err != nil {
		return nil, fmt.Errorf("cannot set up auditing: %w", err)
	}
	if err := s.authenticate(c); err != nil {
		return nil, err
	}
	// Upstream forgets the port when it cannot listen.
	address := net.JoinHostPort(s.cfg.Serving.BindAddress.String(), strconv.Itoa(s.cfg.Serving.BindPort))
	// Not ApplyToConfig: by that, a replica is not live once the loopback's certificate has ended, which nobody asks (trustingItself).
	if err := s.cfg.Serving.WithLoopback().ApplyTo(&c.SecureServing, &c.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("cannot serve on %s (--bind-address, --secure-port): %w", address, err)
	}
	c.SecureServing.ClientCA = s.clientCA
	connections := newConnections(ctx, c.SecureServing.Listener, s.cfg.Limits)
	c.SecureServing.Listener, c.LoopbackClientConfig.Dial = connections, connections.dial
	c.ExternalAddress = net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Serving.BindPort))
	if err := s.cfg.Tracing.ApplyTo(nil, c); err != nil {
		_ = c.SecureServing.Listener.Close()
		return nil, fmt.Errorf("cannot set up tracing: %w", err)
	}
	return c, nil
}

// authenticate sets who may do what.
func (s *Server) authenticate(c *genericapiserver.Config) error {
	ca, err := dynamiccertificates.NewStaticCAContent("client-ca", s.bundle.CAPEM)
	if err != nil {
		return fmt.Errorf("the shard's certificate authority is not usable: %w", err)
	}
	s.clientCA = ca
	if s.cfg.ClientCAFile != "" {
		further, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", s.cfg.ClientCAFile)
		if err != nil {
			return fmt.Errorf("cannot read --client-ca-file: %w", err)
		}
		s.clientCA = dynamiccertificates.NewUnionCAContentProvider(ca, further)
	}
	if c.Authentication.Authenticator, err = newAuthenticator(s.tokens, s.clientCA, s.cfg.TokenFile); err != nil {
		return err
	}
	c.Authorization.Authorizer, err = newAuthorizer()
	return err
}

// newAPI returns the API server over storage: served installs what is served, and the clusters' filter, resolver and
// gate are put around it. It also makes the informers that these need.
func (r *run) newAPI(served *served) (*genericapiserver.GenericAPIServer, error) {
	clients, err := r.replica.clients()
	if err != nil {
		return nil, err
	}
	r.resources = served.resources
	r.informers = controllers.NewInformers(clients, r.resources)
	directory := &routing.Directory{
		Workspaces:      r.informers.Workspaces,
		LogicalClusters: r.informers.LogicalClusters,
		Live:            &served.live,
	}
	c := r.generic
	served.configure(c)
	c.AdmissionControl = admission.NewChainHandler(
		served.admission(r.informers.Namespaces), &routing.Gate{Directory: directory},
		&electionLease{cluster: clusters.SystemAdmin, namespace: r.cfg.Election.Namespace, name: r.cfg.Election.Name},
		&electionLease{cluster: clusters.SystemAdmin, namespace: r.cfg.Election.Namespace, name: ElectionsLease},
		&dryRunFence{check: served.storage.CheckToken},
	)
	r.checkToken = served.storage.CheckToken
	tokens := newTokenFilter(r.cfg.Election.Enabled, r.cfg.Fencing, r.checkToken, c.Authorization.Authorizer, c.Serializer)
	c.BuildHandlerChainFunc = r.handlerChain(directory, tokens)
	r.shard = newShardCheck(served.client, r.cfg, r.bundle, served.secrets)
	r.etcd = newEtcdCheck(served.client, r.cfg.EtcdPrefix)
	c.AddReadyzChecks(unhurried{r.etcd}, r.shard, informersCheck(r.informers), historyCheck(served.storage))
	c.AddReadyzChecks(served.keys...)
	c.AddHealthChecks(supervisorCheck(r.probe))
	events := clients.Kube.CoreV1().Events(r.cfg.Election.Namespace)
	r.recorder = newRecorder(events, r.cfg.Election.Namespace, r.cfg.Election.Name, r.name)
	r.electionsRecorder = newRecorder(events, r.cfg.Election.Namespace, ElectionsLease, r.name)
	supervisor.ShowMetrics(r.cfg.Registry)
	if err := registerTimeline(); err != nil {
		return nil, fmt.Errorf("cannot register the metric of takeovers: %w", err)
	}

	api, err := c.Complete(nil).New("regent", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("cannot make the API server: %w", err)
	}
	if err := served.install(api); err != nil {
		return nil, err
	}
	api.Handler.NonGoRestfulMux.HandleFunc(routing.StepDownPath, r.serveStepDown)
	if r.cfg.Profiling {
		installProfiling(api.Handler.NonGoRestfulMux)
	}
	api.ShutdownTimeout = (r.cfg.ShutdownTimeout - r.cfg.ShutdownDelay) / 2
	return api, r.addHooks(api)
}

// installProfiling serves profiles, and lets the verbosity of the log be set, to members of system:masters.
func installProfiling(mux *mux.PathRecorderMux) {
	routes.Profiling{}.Install(mux)
	routes.DebugFlags{}.Install(mux, "v", routes.StringFlagPutHandler(logs.GlogSetter))
}

// historyCheck fails once etcd has gone back: what this replica would answer is of another history.
func historyCheck(client *storage.Client) healthz.HealthChecker {
	return healthz.NamedCheck("etcd-history", func(*http.Request) error { return client.Fault() })
}

// supervisorTimeout is how long the supervisor may take to answer.
const supervisorTimeout = 2 * time.Second

// supervisorCheck fails only if the supervisor of this process's term itself hangs, which a restart alone can mend. Who
// leads, and how the controllers fare, are no matter of health: the replica serves.
func supervisorCheck(probe interface{ Ping(context.Context) error }) healthz.HealthChecker {
	return unhurried{healthz.NamedCheck("supervisor", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), supervisorTimeout)
		defer cancel()
		return probe.Ping(ctx)
	})}
}

// unhurried is a check that does not end with its caller, but by a timeout of its own: that a caller hangs up says nothing
// about what is checked, and the log would say that it has failed.
type unhurried struct{ healthz.HealthChecker }

// Check implements healthz.HealthChecker.
func (u unhurried) Check(req *http.Request) error {
	return u.HealthChecker.Check(req.WithContext(context.WithoutCancel(req.Context())))
}
