package terms

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// set is a set of controllers that run together, with clients of their own.
type set struct {
	part
	// user is the bearer token of the clients.
	user string
	// token is the term's fencing token. It is zero without leader election and for the controllers of every
	// replica.
	token fence.Token
	// measure wraps all requests. Nil: they are not wrapped.
	measure transport.WrapperFunc
	// begun is called with the set's clients before its controllers start. They are used until the function that it
	// returns has returned. May be nil.
	begun func(controllers.Clients) (stop func())
	// run runs the controllers, and returns when they have been joined.
	run func(context.Context, controllers.Deps) error
}

// run runs a set and returns when everything of it has ended. A refused write ends the term of ctx.
func (r *Runner) run(ctx context.Context, s set) error {
	client := r.newClient(s, func(req *http.Request) {
		election.Fail(ctx, fmt.Errorf("%w: %s %s was refused", election.Fenced, req.Method, req.URL.Path))
	})
	defer client.Close()
	defer r.late.clear(s.part)
	deps := r.cfg.Deps
	deps.Token, deps.Range = s.token, clusters.Range(s.of)
	var err error
	if deps.Clients, err = client.Clients(); err != nil {
		return err
	}
	if s.begun != nil {
		defer s.begun(deps.Clients)()
	}
	return s.run(ctx, deps)
}

// supervision returns the Config of the supervisor of a set.
func (r *Runner) supervision(p part) supervisor.Config {
	cfg := r.cfg.Supervision
	cfg.Probe = r.probe(p)
	cfg.OnEvent = func(e supervisor.Event) { r.take(p, e) }
	return cfg
}

// newClient returns a client whose writes carry the set's token. It calls fenced when a write is refused because the
// term is over.
func (r *Runner) newClient(s set, fenced func(*http.Request)) *loopback.Client {
	client := loopback.New(r.cfg.API, s.user)
	if !s.token.IsZero() {
		client.Wrap(fence.Transport(fence.Of(s.token)))
		client.Wrap(fence.OnFenced(fenced))
		client.Wrap(r.cfg.Transport)
	}
	client.Wrap(s.measure)
	return client
}

// take handles an event of any set.
func (r *Runner) take(p part, e supervisor.Event) {
	switch e.Type {
	case supervisor.ControllerFailed:
		r.cfg.Warn(fmt.Sprintf("cannot run controller %q%s: %v (%s)", e.Controller, p.suffix(), e.Err, e.Effect))
	case supervisor.TermTolerates:
		r.cfg.Warn(e.Err.Error() + p.suffix())
	case supervisor.ControllerLate:
		r.late.add(p, e.Controller+p.suffix())
	case supervisor.ProcessFailed:
		r.cfg.Exit(e.Err)
	}
}

// lateControllers are the controllers that still run although their drain timeout has passed.
type lateControllers struct {
	mu     sync.Mutex
	byPart map[part][]string
}

func (l *lateControllers) add(p part, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPart == nil {
		l.byPart = map[part][]string{}
	}
	l.byPart[p] = append(l.byPart[p], name)
}

func (l *lateControllers) clear(p part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byPart, p)
}

func (l *lateControllers) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, names := range l.byPart {
		out = append(out, names...)
	}
	slices.Sort(out)
	return out
}
