package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// Source says to which term a request belongs. It is asked for each request, with the request's context, and must not
// block. With an error, writes are not sent and fail with it; reads are sent without a token. With the zero Token all
// are sent without one.
//
// Because it is asked each time, one transport serves clients that live as long as a term (Of), the client of the Lease, which has
// the token in its contexts (FromContext), and processes whose terms come and go (Current).
type Source func(context.Context) (Token, error)

// Of is the source of one term.
func Of(t Token) Source {
	return func(context.Context) (Token, error) { return t, nil }
}

// FromContext is the source for callers that put the token into the request's context (With).
func FromContext(ctx context.Context) (Token, error) { return From(ctx), nil }

// ErrNoTerm is why writes of a Current fail that has no term.
var ErrNoTerm = errors.New("this process leads no term: it must not write")

// Current is a source for a process whose terms come and go, such as one that runs client-go's leader election. It may
// be used by several goroutines. The zero Current has no term.
type Current struct{ token atomic.Pointer[Token] }

// Set begins a term.
func (c *Current) Set(t Token) { c.token.Store(&t) }

// Clear is for when a term's work has ended, not for when the term has: a write that is under way then was decided in the
// term and keeps its token, and the server lets it pass or refuses it. From here on writes fail with ErrNoTerm.
func (c *Current) Clear() { c.token.Store(nil) }

// Source implements Source.
func (c *Current) Source(context.Context) (Token, error) {
	if t := c.token.Load(); t != nil {
		return *t, nil
	}
	return Token{}, ErrNoTerm
}

// Transport returns a wrapper, as rest.Config.Wrap takes it, that sends the token of source with every request:
//
//	config.Wrap(fence.Transport(current.Source))
//
// Not for the client with which the lease itself is acquired: nobody has the token before.
func Transport(source Source) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, source: source} }
}

type transport struct {
	next   http.RoundTripper
	source Source
	last   atomic.Pointer[written] // most requests have the token of the one before
}

// written is a token and its HeaderValue.
type written struct {
	token Token
	value string
}

// RoundTrip leaves the request as it is, and sends a copy.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	value, err := t.value(req.Context())
	if err != nil && !reads(req.Method) {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must
		}
		return nil, fmt.Errorf("the write was not sent: %w", err)
	}
	if value == "" {
		return t.next.RoundTrip(req)
	}
	sent := req.Clone(req.Context())
	sent.Header.Set(Header, value)
	return t.next.RoundTrip(sent)
}

// value is what the header says; empty without a token.
func (t *transport) value(ctx context.Context) (string, error) {
	token, err := t.source(ctx)
	if err != nil || token.IsZero() {
		return "", err
	}
	if last := t.last.Load(); last != nil && last.token == token {
		return last.value, nil
	}
	value, err := token.HeaderValue()
	if err != nil {
		return "", err
	}
	t.last.Store(&written{token, value})
	return value, nil
}

// WrappedRoundTripper is for client-go, which looks for what it can cancel.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// OnFenced returns a wrapper, as rest.Config.Wrap takes it, that calls fenced with the request, from its goroutine, before
// it returns an answer for which IsFenced holds. To whoever sends a token that is the end of the term.
func OnFenced(fenced func(*http.Request)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &observer{next, fenced} }
}

type observer struct {
	next   http.RoundTripper
	fenced func(*http.Request)
}

// longestStatus bounds what is read of an answer to tell what it says, in bytes.
const longestStatus = 64 << 10

// RoundTrip leaves the answer as it is.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusPreconditionFailed {
		return resp, err
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, longestStatus))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	// In every encoding of a Status the reason stands as it is, and nobody else uses it.
	if bytes.Contains(head, []byte(Reason)) {
		o.fenced(req)
	}
	return resp, nil
}

// failing is what is left of a body that cannot be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// WrappedRoundTripper is for client-go, which looks for what it can cancel.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
