package shards

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// failover sends requests to a replica of one other shard: to the one that answered last, or to the next ones if that
// does not answer. It is for reading, because it may send a request more than once.
type failover struct {
	replicas replicas
	bounds   bounds
	next     *Calls

	mu    sync.Mutex
	fault error // of the last request, nil if it was answered
}

func newFailover(caller *Caller, m Member) (*failover, error) {
	f := &failover{bounds: boundsOf(m.Name)}
	if err := f.replicas.set(m.Name, m.URLs); err != nil {
		return nil, err
	}
	var err error
	f.next, err = caller.Calls(m.Name, m.Authority, func(config *tls.Config) (*http.Transport, error) {
		return newTransport(func(ctx context.Context, network, address string) (net.Conn, error) {
			return connect(ctx, network, address, config, len(m.URLs) == 1)
		}), nil
	})
	return f, err
}

// RoundTrip implements http.RoundTripper.
func (f *failover) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return nil, fmt.Errorf("%s %s: a shard writes nothing to another shard", req.Method, req.URL.Path)
	}
	resp, err := f.read(req)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault = err; err == nil && resp.StatusCode >= http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
		f.fault = fmt.Errorf("%s answers %s to %s", resp.Request.URL.Host, resp.Status, req.URL.Path)
		if resp.StatusCode == http.StatusUnauthorized {
			f.fault = fmt.Errorf("%w: was this shard removed, or is its membership an old one? regent shard list says who is a member", f.fault)
		}
	}
	return resp, err
}

// lastFault returns why the last request failed, and nil if it did not.
func (f *failover) lastFault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// read returns the first good answer. If there is none, but a replica has answered, that is the answer.
func (f *failover) read(req *http.Request) (answer *http.Response, err error) {
	err = f.replicas.try(req.Context(), func(replica *url.URL, _ bool) error {
		resp, err := f.ask(req, replica) //nolint:bodyclose // the caller closes answer
		if err != nil {
			return err
		}
		if answer != nil {
			_ = answer.Body.Close()
		}
		if answer = resp; isBehind(resp) {
			return fmt.Errorf("%s: %s", replica.Host, resp.Status)
		}
		return nil
	})
	if answer == nil {
		return nil, err
	}
	return answer, nil
}

// isBehind reports whether another replica may know better: this one is not ready, or has not heard yet who is a
// member.
func isBehind(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusUnauthorized
}

func (f *failover) ask(req *http.Request, at *url.URL) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = at.Scheme, at.Host, ""
	resp, err := f.bounds.ask(out, f.next)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.Host, err)
	}
	return resp, nil
}

func (f *failover) close() { f.next.CloseIdleConnections() }

var _ http.RoundTripper = (*failover)(nil)
