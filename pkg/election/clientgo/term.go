package clientgo

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// ForTerm returns a copy of config for the clients of one term, where the server checks fencing tokens
// (election.Config.Fenced): each request carries the term's token, and a write that is refused because the term is over
// ends the term. ctx is what OnStartedLeading got, or made of that. Make the clients anew in each term. With any other
// context all writes fail with fence.ErrNoTerm, and are not sent.
func ForTerm(ctx context.Context, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	token := fence.From(ctx)
	config.Wrap(fence.Transport(func(context.Context) (fence.Token, error) {
		if token.IsZero() {
			return token, fence.ErrNoTerm
		}
		return token, nil
	}))
	config.Wrap(fence.OnFenced(func(req *http.Request) {
		election.Fail(ctx, fmt.Errorf("%w: %s %s was refused", election.Fenced, req.Method, req.URL.Path))
	}))
	return config
}
