package fence

import (
	"context"
	"net/http"
)

type contextKey struct{}

// With returns a context whose writes belong to the term of t.
func With(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the token of ctx; the zero Token if it has none.
func From(ctx context.Context) Token {
	t, _ := ctx.Value(contextKey{}).(Token)
	return t
}

// Transport returns a wrapper, as rest.Config.Wrap takes it, that sends t with every request. It fails if t is no token of
// a term.
func Transport(t Token) (func(http.RoundTripper) http.RoundTripper, error) {
	value, err := t.HeaderValue()
	if err != nil {
		return nil, err
	}
	return func(next http.RoundTripper) http.RoundTripper { return &transport{next, value} }, nil
}

type transport struct {
	next  http.RoundTripper
	value string
}

// RoundTrip leaves the request as it is, and sends a copy.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := req.Clone(req.Context())
	sent.Header.Set(Header, t.value)
	return t.next.RoundTrip(sent)
}

// WrappedRoundTripper is for client-go, which looks for what it can cancel.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
