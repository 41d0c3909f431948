package terms

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// set is a set of controllers that run together, with clients of their own.
type set struct {
	scope controllers.Scope
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
	defer r.late.clear(s.scope)
	deps := r.cfg.Deps
	deps.Token = s.token
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
func (r *Runner) supervision(scope controllers.Scope) supervisor.Config {
	cfg := r.cfg.Supervision
	cfg.Probe = r.probes[scope]
	cfg.OnEvent = func(e supervisor.Event) { r.take(scope, e) }
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
func (r *Runner) take(scope controllers.Scope, e supervisor.Event) {
	switch e.Type {
	case supervisor.ControllerFailed:
		r.cfg.Warn(fmt.Sprintf("cannot run controller %q: %v (%s)", e.Controller, e.Err, e.Effect))
	case supervisor.TermTolerates:
		r.cfg.Warn(e.Err.Error())
	case supervisor.ControllerLate:
		r.late.add(scope, e.Controller)
	case supervisor.ProcessFailed:
		r.cfg.Exit(e.Err)
	}
}

// lateControllers are the controllers that still run although their drain timeout has passed.
type lateControllers struct {
	mu      sync.Mutex
	byScope map[controllers.Scope][]string
}

func (l *lateControllers) add(scope controllers.Scope, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byScope == nil {
		l.byScope = map[controllers.Scope][]string{}
	}
	l.byScope[scope] = append(l.byScope[scope], name)
}

func (l *lateControllers) clear(scope controllers.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byScope, scope)
}

func (l *lateControllers) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, names := range l.byScope {
		out = append(out, names...)
	}
	slices.Sort(out)
	return out
}
