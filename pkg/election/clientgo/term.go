package clientgo

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/leader"
)

// termKey is the context key of the election.Term of OnStartedLeading.
type termKey struct{}

// inTerm returns the context of OnStartedLeading: it tells the term, and its token.
func inTerm(ctx context.Context, term election.Term) context.Context {
	return fence.With(context.WithValue(ctx, termKey{}, term), term.Token())
}

// ForTerm returns a copy of config for the clients of one term, where the server checks fencing tokens
// (election.Config.Fenced): each request carries the term's token, and a write that is refused because the term is over
// ends the term. ctx is what OnStartedLeading got, or made of that. Make the clients anew in each term. With any other
// context all writes fail with fence.ErrNoTerm, and are not sent.
func ForTerm(ctx context.Context, config *rest.Config) *rest.Config {
	if term, ok := ctx.Value(termKey{}).(election.Term); ok {
		return leader.ForTerm(ctx, config, term)
	}
	config = rest.CopyConfig(config)
	config.Wrap(fence.Transport(new(fence.Current).Source)) // which has no term
	return config
}
