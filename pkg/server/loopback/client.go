// Package loopback has the clients with which this process calls its own API server.
package loopback

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Client calls this process's own API server as one in-process user, over connections of its own. client-go would share
// connections between all clients with equal TLS settings. Then the traffic of one user, or the end of one term, could delay
// the renewals of another.
type Client struct {
	config *rest.Config
	http   *http.Client
	door   *door
}

// New returns a Client for the user of token. Each request goes to the logical cluster in its context. host is the server's own
// loopback configuration.
func New(host *rest.Config, token string) (*Client, error) {
	return newClient(host, token, host.Host, clusters.Transport)
}

// In returns a Client whose requests all go to one logical cluster.
func In(cluster logicalcluster.Name, host *rest.Config, token string) (*Client, error) {
	at, err := url.JoinPath(host.Host, "clusters", cluster.String())
	if err != nil {
		return nil, fmt.Errorf("cannot make the loopback URL of cluster %s: %w", cluster, err)
	}
	return newClient(host, token, at, func(next http.RoundTripper) http.RoundTripper { return next })
}

func newClient(host *rest.Config, token, at string, wrap transport.WrapperFunc) (*Client, error) {
	tlsConfig, err := trustingItself(host)
	if err != nil {
		return nil, err
	}
	way := &door{next: &http.Transport{
		DialContext:         host.Dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 25,
	}}
	return &Client{
		// There is no rate limit: the queue of one in the client would delay urgent requests behind many others. Warnings are
		// not logged: an operator cannot act on the news that an API is beta.
		config: &rest.Config{Host: at, QPS: -1, UserAgent: rest.DefaultKubernetesUserAgent(), WarningHandler: rest.NoWarnings{}},
		http:   &http.Client{Transport: wrap(transport.NewBearerAuthRoundTripper(token, way))},
		door:   way,
	}, nil
}

// errNotThisProcess is the error of a connection that leads to another process.
var errNotThisProcess = errors.New("what answers on the loopback is not this process")

// trustingItself returns a TLS configuration that trusts only the certificate that this process made for its loopback. It
// ignores the certificate's dates: a clock that is set back must not keep a term from connecting.
func trustingItself(host *rest.Config) (*tls.Config, error) {
	made, err := cert.ParseCertsPEM(host.CAData)
	if err != nil {
		return nil, fmt.Errorf("the loopback's certificate is not usable: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host.ServerName,
		// No authority signs this certificate. VerifyConnection does the whole check.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection pins the certificate
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !state.PeerCertificates[0].Equal(made[0]) {
				return errNotThisProcess
			}
			return nil
		},
	}, nil
}

// Wrap puts a transport around all requests. Nil: none. Call it before Clients.
func (c *Client) Wrap(wrap transport.WrapperFunc) {
	if wrap != nil {
		c.http.Transport = wrap(c.http.Transport)
	}
}

// Close closes the idle connections and makes all further requests fail with ErrClosed, so that code that keeps the client of a
// term that has ended can do no harm. Requests in flight end with their contexts.
func (c *Client) Close() {
	c.door.closed.Store(true)
	c.door.next.CloseIdleConnections()
}

// ErrClosed is the error of requests after Close.
var ErrClosed = errors.New("this client belongs to a term that has ended, or to a server that stops: make no request with it any more")

// door is a transport that can be closed.
type door struct {
	next   *http.Transport
	closed atomic.Bool
}

// RoundTrip fails once the door is closed.
func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	if d.closed.Load() {
		return nil, ErrClosed
	}
	return d.next.RoundTrip(req)
}

// Clients returns the clients that controllers get.
func (c *Client) Clients() (controllers.Clients, error) {
	return controllers.NewClients(c.config, c.http)
}
