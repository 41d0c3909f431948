package shards

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/pki"
)

const (
	// dialTimeout is how long a connection may take to be made. A replica that vanishes is noticed after pingAfter and pingTimeout: it is
	// silent for the one, and does not answer for the other.
	dialTimeout            = time.Second
	pingAfter, pingTimeout = time.Second, 2 * time.Second
	// A certificate is used for callRenewal, and valid for callValidity.
	callValidity, callRenewal = 24 * time.Hour, 12 * time.Hour
)

// failover sends requests to a replica of one other shard: to the one that answered last, or to the next ones if that does not answer.
// It is for reading, because it may send a request more than once.
type failover struct {
	member member
	urls   []*url.URL
	next   *http.Transport

	mu        sync.Mutex
	preferred int
	fault     error // of the last request, nil if it was answered

	open OpenWatches
}

func newFailover(cfg Config, m member) (*failover, error) {
	f := &failover{member: m}
	for _, text := range m.urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("shard %s: its Shard object has a faulty URL: %w", m.name, err)
		}
		f.urls = append(f.urls, u)
	}
	if len(f.urls) == 0 {
		return nil, fmt.Errorf("shard %s has no URL: set spec.baseURL of its Shard object", m.name)
	}
	var err error
	f.next, err = NewTransport(cfg.CA, cfg.Authority, m.name, m.authority)
	return f, err
}

// NewTransport returns a transport for requests to one shard, whatever their address. ca is the certificate of the installation's authority, in
// PEM, and authority signs the certificates with which this process calls. fingerprint is that of the shard's authority, if it is known.
func NewTransport(ca []byte, authority *pki.Authority, shard, fingerprint string) (*http.Transport, error) {
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(ca) {
		return nil, errors.New("the installation's authority has no certificate")
	}
	out := &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: -1}).DialContext, // pings replace TCP's keep-alive
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: trust, ServerName: pki.ServerName,
			VerifyConnection:     member{name: shard, authority: fingerprint}.verify,
			GetClientCertificate: (&caller{authority: authority}).certificate,
		},
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	out.Protocols.SetHTTP2(true)
	return out, nil
}

// verify refuses whoever is not the shard, though the installation's authority trusts it.
func (m member) verify(state tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("the connection is not verified")
	}
	who, authority, err := pki.MemberOf(state.VerifiedChains[0])
	if err != nil {
		return fmt.Errorf("at the address of shard %s: %w", m.name, err)
	}
	if who != (pki.Member{Kind: pki.KindShard, Name: m.name}) {
		return fmt.Errorf("%s answers at the address of shard %s: correct the URLs of its Shard object in cluster root", who, m.name)
	}
	if m.authority != "" && pki.Fingerprint(authority) != m.authority {
		return fmt.Errorf("shard %s answers with another membership than its Shard object names: give its replicas the latest one", m.name)
	}
	return nil
}

// caller has the certificate with which this process calls others. It renews it.
type caller struct {
	authority *pki.Authority

	mu   sync.Mutex
	made time.Time
	pair *tls.Certificate
}

func (c *caller) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.made) < callRenewal {
		return c.pair, nil
	}
	certPEM, keyPEM, err := c.authority.Call(callValidity)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the certificate with which this shard calls others is not usable: %w", err)
	}
	c.pair, c.made = &pair, time.Now()
	return c.pair, nil
}

// RoundTrip implements http.RoundTripper.
func (f *failover) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.try(req)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault = err; err == nil && resp.StatusCode >= http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
		f.fault = fmt.Errorf("%s answers %s to %s", resp.Request.URL.Host, resp.Status, req.URL.Path)
	}
	return resp, err
}

// lastFault returns why the last request failed, and nil if it did not.
func (f *failover) lastFault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

func (f *failover) try(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return nil, fmt.Errorf("%s %s: a shard writes nothing to another shard", req.Method, req.URL.Path)
	}
	first := f.first()
	var errs []error
	for n := range f.urls {
		at := (first + n) % len(f.urls)
		resp, err := f.ask(req, f.urls[at])
		last := n == len(f.urls)-1
		switch {
		case err != nil && (last || req.Context().Err() != nil):
			return nil, errors.Join(append(errs, err)...)
		case err != nil:
			errs = append(errs, err)
			continue
		case (resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusUnauthorized) && !last: // it may be behind
			_ = resp.Body.Close()
			errs = append(errs, fmt.Errorf("%s: %s", f.urls[at].Host, resp.Status))
			continue
		}
		f.prefer(at)
		f.open.Track(req, resp)
		return resp, nil
	}
	return nil, errors.Join(errs...)
}

func (f *failover) ask(req *http.Request, at *url.URL) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = at.Scheme, at.Host, ""
	return f.next.RoundTrip(out)
}

func (f *failover) first() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.preferred
}

func (f *failover) prefer(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.preferred = n
}

func (f *failover) close() { f.next.CloseIdleConnections() }

var _ http.RoundTripper = (*failover)(nil)
