package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	apiversion "k8s.io/apimachinery/pkg/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	// Metrics of the clients and queues in this process, on /metrics.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/tracing"
)

// newGenericConfig returns the part of upstream's configuration that needs no storage. It opens the listener.
func (s *Server) newGenericConfig(ctx context.Context) (*genericapiserver.Config, error) {
	c := genericapiserver.NewConfig(apis.Codecs)
	c.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	// Upstream's default is a hash of the host's name, which replicas on one machine share.
	c.APIServerID = "regent-" + s.name
	c.Flagz = s.cfg.Flags
	// Upstream's profiling also makes DELETE /metrics reset all metrics, including gauges that are set only once.
	c.EnableProfiling = false
	c.FeatureGate = edge.WithoutConstrainedImpersonation{FeatureGate: utilfeature.DefaultFeatureGate}
	c.ShutdownWatchTerminationGracePeriod = watchGrace
	c.ShutdownDelayDuration = s.cfg.ShutdownDelay
	s.cfg.Limits.ApplyTo(c)
	if err := s.cfg.Audit.ApplyTo(c); err != nil {
		return nil, fmt.Errorf("cannot set up auditing: %w", err)
	}
	if c.AuditBackend != nil {
		c.AuditBackend = &edge.AuditStamp{Backend: c.AuditBackend, Shard: s.cfg.Shard, Replica: s.name}
	}
	if err := s.authenticate(c); err != nil { //nolint:contextcheck // it starts nothing that a context would have to end
		return nil, err
	}
	// Upstream's error does not name the port when it cannot listen.
	address := net.JoinHostPort(s.cfg.Serving.BindAddress.String(), strconv.Itoa(s.cfg.Serving.BindPort))
	if err := s.cfg.Serving.ApplyTo(&c.SecureServing); err != nil {
		return nil, fmt.Errorf("cannot serve on %s (--bind-address, --secure-port): %w", address, err)
	}
	// Upstream demands a configuration for clients in this process. They do without: see package loopback.
	c.LoopbackClientConfig = &rest.Config{}
	c.SecureServing.ClientCA = s.clientCA
	if members := s.keys.Members(); members != nil {
		c.SecureServing.SNICerts = append(c.SecureServing.SNICerts, members)
	}
	s.connections = connections.Limit(ctx, c.SecureServing.Listener, s.cfg.Limits.OfConnections())
	c.SecureServing.Listener = s.connections
	c.ExternalAddress = net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Serving.BindPort))
	if err := s.trace(ctx); err != nil {
		_ = c.SecureServing.Listener.Close()
		return nil, err
	}
	c.TracerProvider = s.tracing.ForRequests()
	return c, nil
}

// trace makes what sends spans to a collector, if --tracing-config-file names one.
func (s *Server) trace(ctx context.Context) (err error) {
	if s.cfg.Tracing == nil {
		return nil
	}
	s.tracing, err = tracing.New(ctx, s.cfg.Tracing.ConfigFile, attribute.String("service.name", "regent"),
		attribute.String("service.instance.id", s.instance), attribute.String("service.version", build.Info().GitVersion),
		attribute.String("regent.shard", s.cfg.Shard), attribute.String("regent.replica", s.name))
	if err != nil {
		return fmt.Errorf("cannot set up tracing (--tracing-config-file): %w", err)
	}
	return nil
}

// effectiveVersion is upstream's, which shows a placeholder as the version of a build for which the linker was given
// none.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

// Info implements EffectiveVersion: /version shows it.
func (v effectiveVersion) Info() *apiversion.Info {
	info, ours := v.EffectiveVersion.Info(), build.Info()
	info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate = ours.GitVersion, ours.GitCommit, ours.GitTreeState, ours.BuildDate
	return info
}

// authenticate sets the authenticator and the authorizer.
func (s *Server) authenticate(c *genericapiserver.Config) error {
	s.clientCA = s.keys.Clients()
	if s.cfg.ClientCAFile != "" {
		further, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", s.cfg.ClientCAFile)
		if err != nil {
			return fmt.Errorf("cannot read --client-ca-file: %w", err)
		}
		s.furtherCA = further
		s.clientCA = dynamiccertificates.NewUnionCAContentProvider(s.keys.Clients(), further)
	}
	issuer, err := s.cfg.ServiceAccounts.NewIssuer(s.cfg.Shard, filepath.Join(s.cfg.RootDirectory, pkiDirectory))
	if err != nil {
		return err
	}
	s.identity, err = identity.New(identity.Config{
		Shard: s.cfg.Shard, RootShard: s.cfg.rootShard(), Replica: c.APIServerID, Members: s.keys.Clients(), ClientCA: s.clientCA,
		TokenFile: s.cfg.TokenFile, Issuer: issuer, AuthenticationFile: s.cfg.AuthenticationConfigFile,
		AuthorizationFile: s.cfg.AuthorizationConfigFile, TokenWebhook: s.cfg.TokenWebhook,
	})
	if err != nil {
		return err
	}
	c.Authentication.Authenticator, c.Authorization.Authorizer = s.identity.Authenticator, s.identity.Authorizer
	return nil
}
