package webhooks

import (
	"io"
	"net/http"
	"sync"
)

// Transport makes each request a call, from its first byte to the last of the answer.
func (c *Calls) Transport(through http.RoundTripper) http.RoundTripper { return &transport{c, through} }

type transport struct {
	calls   *Calls
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end, err := t.calls.Begin(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.through.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &body{resp.Body, sync.OnceFunc(end)}
	return resp, nil
}

// body ends the call when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
