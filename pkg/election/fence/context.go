package fence

import "context"

type contextKey struct{}

// With returns a context whose writes belong to the term of t.
func With(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the token of ctx; zero if ctx has none.
func From(ctx context.Context) Token {
	t, _ := ctx.Value(contextKey{}).(Token)
	return t
}
