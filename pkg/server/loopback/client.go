// Package loopback has the clients with which this process calls its own API server.
package loopback

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// host is what clients call their server, in errors.
const host = "https://this-replica"

// Client calls this process's own API server as one in-process user.
type Client struct {
	config *rest.Config
	http   *http.Client
	door   *door
}

// New returns a Client for the user of token. Each request goes to the logical cluster in its context.
func New(server *Server, token string) *Client {
	return newClient(server, token, host, clusters.Transport)
}

// In returns a Client whose requests all go to one logical cluster.
func In(cluster logicalcluster.Name, server *Server, token string) *Client {
	return newClient(server, token, host+clusters.RequestPath(cluster), func(next http.RoundTripper) http.RoundTripper { return next })
}

func newClient(server *Server, token, at string, wrap transport.WrapperFunc) *Client {
	way := &door{next: server}
	return &Client{
		// There is no rate limit: the queue of one in the client would delay urgent requests behind many
		// others. Warnings are not logged: an operator cannot act on the news that an API is beta.
		config: &rest.Config{Host: at, QPS: -1, UserAgent: rest.DefaultKubernetesUserAgent(), WarningHandler: rest.NoWarnings{}},
		http:   &http.Client{Transport: wrap(transport.NewBearerAuthRoundTripper(token, way))},
		door:   way,
	}
}

// Wrap puts a transport around all requests. Nil: none. Call it before Clients.
func (c *Client) Wrap(wrap transport.WrapperFunc) {
	if wrap != nil {
		c.http.Transport = wrap(c.http.Transport)
	}
}

// Close makes all further requests fail with ErrClosed, so that code that keeps the client of a term that has ended can
// do no harm. Requests in flight end with their contexts.
func (c *Client) Close() { c.door.closed.Store(true) }

// ErrClosed is the error of requests after Close.
var ErrClosed = errors.New("this client belongs to a term that has ended, or to a server that stops: make no request with it any more")

// door is a transport that can be closed.
type door struct {
	next   http.RoundTripper
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
