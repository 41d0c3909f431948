package leader

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// ForTerm returns a copy of config for the clients of one term, where the server checks fencing tokens (Config.Fenced):
// each request carries the term's token, and a write that is refused because the term is over ends the term. ctx and
// term are what the LeadFunc got, or ctx is made of that, as the context is that a control.Descriptor's New gets. Make
// the clients anew in each term.
func ForTerm(ctx context.Context, config *rest.Config, term election.Term) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(fence.Transport(fence.Of(term.Token())))
	config.Wrap(fence.OnFenced(func(req *http.Request) {
		election.Fail(ctx, fmt.Errorf("%w: %s %s was refused", election.Fenced, req.Method, req.URL.Path))
	}))
	return config
}
