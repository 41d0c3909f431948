package server

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/google/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	// Metrics of the clients and queues in this process, on /metrics.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/pki"
)

// newGenericConfig returns the part of upstream's configuration that needs no storage. It opens the listener.
func (s *Server) newGenericConfig(ctx context.Context) (*genericapiserver.Config, error) {
	c := genericapiserver.NewConfig(apis.Codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	// Upstream's default is a hash of the host's name, which replicas on one machine share.
	c.APIServerID = "regent-" + s.name
	// Upstream's profiling also makes DELETE /metrics reset all metrics, including gauges that are set only once.
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
	// Upstream's error does not name the port when it cannot listen.
	address := net.JoinHostPort(s.cfg.Serving.BindAddress.String(), strconv.Itoa(s.cfg.Serving.BindPort))
	if err := s.cfg.Serving.ApplyTo(&c.SecureServing); err != nil {
		return nil, fmt.Errorf("cannot serve on %s (--bind-address, --secure-port): %w", address, err)
	}
	var err error
	if c.LoopbackClientConfig, err = serveLoopback(c.SecureServing); err != nil {
		_ = c.SecureServing.Listener.Close()
		return nil, fmt.Errorf("cannot serve this process's own clients: %w", err)
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

// serveLoopback has the server show a certificate of its own to clients in this process, and returns their configuration. It
// does what upstream's WithLoopback does, which makes two RSA keys: almost half of the CPU that a replica takes until it is
// ready.
func serveLoopback(serving *genericapiserver.SecureServingInfo) (*rest.Config, error) {
	certPEM, keyPEM, err := pki.Loopback(genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return nil, err
	}
	pair, err := dynamiccertificates.NewStaticSNICertKeyContent("loopback", certPEM, keyPEM, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return nil, err
	}
	serving.SNICerts = append([]dynamiccertificates.SNICertKeyContentProvider{pair}, serving.SNICerts...) // the first of a name counts
	return serving.NewLoopbackClientConfig(uuid.NewString(), certPEM)
}

// authenticate sets the authenticator and the authorizer.
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
