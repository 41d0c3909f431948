package terms

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// set is a set of controllers that run together, with clients of their own.
type set struct {
	scope       controllers.Scope
	descriptors []controllers.Descriptor
	connect     func() (*loopback.Client, error)
	// token is zero without leader election and for the controllers of every replica.
	token fence.Token
	// measure wraps all requests. Nil: they are not wrapped.
	measure   transport.WrapperFunc
	tolerated []string
	// probe reaches the supervisor of the leader's controllers. Nil for all others.
	probe *supervisor.Probe
	// onEvent is called with each event, after the Runner has handled it. May be nil.
	onEvent func(supervisor.Event)
}

// run runs a set and returns when everything of it has ended. A refused write ends the term of ctx.
func (r *Runner) run(ctx context.Context, s set) error {
	client, err := r.dial(s, func(req *http.Request) {
		election.Fail(ctx, fmt.Errorf("%w: %s %s was refused", election.Fenced, req.Method, req.URL.Path))
	})
	if err != nil {
		return err
	}
	defer client.Close()
	defer r.late.clear(s.scope)
	deps := r.cfg.Deps
	deps.Token = s.token
	if deps.Clients, err = client.Clients(); err != nil {
		return err
	}
	cfg := r.cfg.Supervision
	cfg.Tolerated, cfg.Probe = s.tolerated, s.probe
	cfg.OnEvent = func(e supervisor.Event) {
		r.take(s.scope, e)
		if s.onEvent != nil {
			s.onEvent(e)
		}
	}
	return supervisor.Run(ctx, s.descriptors, deps, cfg)
}

// dial returns a client whose writes carry the set's token. It calls fenced when a write is refused because the term is over.
func (r *Runner) dial(s set, fenced func(*http.Request)) (*loopback.Client, error) {
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	if !s.token.IsZero() {
		client.Wrap(fence.Transport(fence.Of(s.token)))
		client.Wrap(fence.OnFenced(fenced))
		client.Wrap(r.cfg.Transport)
	}
	client.Wrap(s.measure)
	return client, nil
}

// take handles an event of any set.
func (r *Runner) take(scope controllers.Scope, e supervisor.Event) {
	switch e.Type {
	case supervisor.ControllerFailed:
		r.cfg.Warn(fmt.Sprintf("cannot run controller %q: %v (%s)", e.Controller, e.Err, e.Effect))
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
