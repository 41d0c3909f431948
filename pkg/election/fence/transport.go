package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

// Source returns the token of the term to which a request belongs. Transport calls it for each request, with the
// request's context. It must not block. If it returns an error, a write fails with that error without being sent, and a
// read is sent without a token. If it returns the zero Token, the request is sent without a token.
//
// Because it is called for each request, one transport can serve clients that live as long as a term (Of), the client
// of the Lease, whose contexts carry the token (FromContext), and processes whose terms come and go (Current).
type Source func(context.Context) (Token, error)

// Of returns the Source of one term.
func Of(t Token) Source {
	return func(context.Context) (Token, error) { return t, nil }
}

// FromContext is the Source for callers that put the token into the request's context (With).
func FromContext(ctx context.Context) (Token, error) { return From(ctx), nil }

// ErrNoTerm is the error of writes through a Current that has no term.
var ErrNoTerm = errors.New("this process leads no term: it must not write")

// Current is a Source for a process whose terms come and go, such as one that runs client-go's leader election. Any
// goroutine may call its methods. The zero Current has no term.
type Current struct{ token atomic.Pointer[Token] }

// Set begins the term of t.
func (c *Current) Set(t Token) { c.token.Store(&t) }

// Clear makes further writes fail with ErrNoTerm. Call it when the work of a term has ended, not when the term has: a
// write that is still under way then was decided in the term and keeps its token, and the server accepts or refuses it.
func (c *Current) Clear() { c.token.Store(nil) }

// Source is a Source: it returns the current term's token.
func (c *Current) Source(context.Context) (Token, error) {
	if t := c.token.Load(); t != nil {
		return *t, nil
	}
	return Token{}, ErrNoTerm
}

// Transport returns a wrapper for rest.Config.Wrap that sends the token of source with every request:
//
//	config.Wrap(fence.Transport(current.Source))
//
// Do not use it for the client that acquires the lease, because nobody has the token before that.
func Transport(source Source) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, source: source} }
}

type transport struct {
	next   http.RoundTripper
	source Source
	last   atomic.Pointer[tokenHeader] // cached, because most requests have the same token as the one before
}

// tokenHeader is a token and its HeaderValue.
type tokenHeader struct {
	token Token
	value string
}

// RoundTrip sends a copy of the request, and does not change the request itself.
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

// value returns the value of the header; empty without a token.
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
	t.last.Store(&tokenHeader{token, value})
	return value, nil
}

// WrappedRoundTripper lets client-go find the transport whose requests it can cancel.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// OnFenced returns a wrapper for rest.Config.Wrap. It calls fenced with each request that gets an answer for which
// IsFenced returns true, before it returns that answer to the caller, and on the caller's goroutine. For a process that
// sends a token this means that its term is over.
func OnFenced(fenced func(*http.Request)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &observer{next, fenced} }
}

type observer struct {
	next   http.RoundTripper
	fenced func(*http.Request)
}

// longestAnswer is how much of an answer is read, to find its reason or a Lease in it, in bytes.
const longestAnswer = 64 << 10

// RoundTrip does not change the answer.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusPreconditionFailed {
		return resp, err
	}
	// Every encoding of a Status has the reason as plain text, and nothing else uses that word.
	if bytes.Contains(peek(resp), []byte(Reason)) {
		o.fenced(req)
	}
	return resp, nil
}

// failing is the rest of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// WrappedRoundTripper lets client-go find the transport whose requests it can cancel.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
