package shards

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// acceptTimeout is how long a replica may take to accept a connection, TLS included, while there are others to
	// try: one that is paused accepts, but does not go on. lastAcceptTimeout is how long the last one may take: it
	// may just be busy, and nobody else would serve. A replica that vanishes is noticed after pingAfter and
	// pingTimeout: it is silent for the one, and does not answer for the other.
	acceptTimeout          = time.Second
	lastAcceptTimeout      = 3 * time.Second
	pingAfter, pingTimeout = time.Second, 2 * time.Second
	// idleTimeout is how long a connection may have no request.
	idleTimeout = 90 * time.Second
	// maxHeader is how many bytes the header of an answer may have.
	maxHeader = 1 << 20
)

// Dialer connects to whichever replica of one shard accepts. The one that accepted last is tried first. A request that
// was sent is never sent again, so that a Dialer is also for writes. Make it with NewDialer. All methods may be called
// at any time on any goroutine.
type Dialer struct {
	tls      *tls.Config
	replicas replicas
}

// NewDialer returns a dialer for the replicas at urls. A replica accepts when it has shown what config verifies: see
// ClientTLS and Verify.
func NewDialer(shard string, urls []string, config *tls.Config) (*Dialer, error) {
	d := &Dialer{tls: config}
	return d, d.replicas.set(shard, urls)
}

// Transport returns a transport for HTTP/2 through the dialer. It does not look at the hosts of requests. Use one for
// each dialer.
func (d *Dialer) Transport() *http.Transport { return newTransport(d.dial) }

// dial connects. Its error is a *net.OpError of a dial: nothing of a request was sent.
func (d *Dialer) dial(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	err = d.replicas.try(ctx, func(replica *url.URL, last bool) (err error) {
		conn, err = connect(ctx, network, addressOf(replica), d.tls, last)
		return err
	})
	if err != nil {
		return nil, unmade{&net.OpError{Op: "dial", Net: network, Err: err}}
	}
	return conn, nil
}

// unmade is the error of a connection that was not made. Each of its causes names an address, and mostly says "dial"
// itself.
type unmade struct{ *net.OpError }

// Error implements error.
func (u unmade) Error() string { return u.Err.Error() }

// Unwrap is for errors.As: it is a *net.OpError.
func (u unmade) Unwrap() error { return u.OpError }

// of says which address an error is about, unless it does so itself.
func of(address string, err error) error {
	if strings.Contains(err.Error(), address) {
		return err
	}
	return fmt.Errorf("%s: %w", address, err)
}

func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// connect returns a connection over which TLS is spoken. last: there is no other replica to try.
func connect(ctx context.Context, network, address string, config *tls.Config, last bool) (net.Conn, error) {
	within := acceptTimeout
	if last {
		within = lastAcceptTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{KeepAlive: -1}, Config: config} // pings replace TCP's keep-alive
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, of(address, err)
	}
	return conn, nil
}

// newTransport returns a transport for HTTP/2 over connections that dial makes.
func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	out := &http.Transport{
		DialTLSContext: dial,
		Protocols:      new(http.Protocols),
		HTTP2:          &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		// A connection that has requests when its replica is given up would stay for ever.
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
	out.Protocols.SetHTTP2(true)
	return out
}
