package perterm

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// tenancyKey is the context key of the *tenancy to which a request belongs.
type tenancyKey struct{}

// in returns a context whose requests belong to the term.
func (t *tenancy) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, tenancyKey{}, t)
}

// askedKey is the context key of a flag that is set when the server is asked in the name of a read.
type askedKey struct{}

// carriedKey is the context key of a flag that is set when a request gets its token.
type carriedKey struct{}

// tenancyOf returns the term to which a request belongs; nil if it belongs to none.
func tenancyOf(ctx context.Context) *tenancy {
	t, _ := ctx.Value(tenancyKey{}).(*tenancy)
	return t
}

// tokenOf is the fence.Source of the process's connections. Requests whose context comes from a term carry its token,
// whichever client makes them: a reconciler that was moved into a term, and kept the client of the process, is fenced
// like the others. What belongs to no term has no token.
func tokenOf(ctx context.Context) (fence.Token, error) {
	if t := tenancyOf(ctx); t != nil && t.term.Fenced() {
		if carried, ok := ctx.Value(carriedKey{}).(*atomic.Bool); ok {
			carried.Store(true)
		}
		return t.term.Token(), nil
	}
	return fence.Token{}, nil
}

// endFenced ends the term of a request that was refused.
func endFenced(req *http.Request) {
	if t := tenancyOf(req.Context()); t != nil {
		t.fail(election.Fenced)
	}
}

// carrying are the connections of a process whose requests carry the tokens of their terms.
type carrying struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c *carrying) RoundTrip(req *http.Request) (*http.Response, error) {
	if asked, ok := req.Context().Value(askedKey{}).(*atomic.Bool); ok {
		asked.Store(true)
	}
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport whose requests it can cancel.
func (c *carrying) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// carry has the clients of the process send the tokens of terms. Its error says why they cannot: then terms that are
// fenced are refused. Until the manager starts nothing uses its clients, and a manager of controller-runtime is locked
// for as long as its start takes.
func carry(process manager.Manager) error {
	starting, locked := process.(sync.Locker)
	if locked {
		starting.Lock()
		defer starting.Unlock()
	}
	c := process.GetHTTPClient()
	if _, ok := c.Transport.(*carrying); ok {
		return nil
	}
	if c == http.DefaultClient || c.Transport == nil {
		return errShared
	}
	if started(process, locked) {
		return errStarted
	}
	c.Transport = &carrying{fence.OnFenced(endFenced)(fence.Transport(tokenOf)(c.Transport))}
	return nil
}

// started reports whether a manager has started, or starts. The interface does not tell, so it looks into
// controller-runtime's own type, as it is in v0.24 and v0.25, if the caller has locked it.
func started(process manager.Manager, locked bool) bool {
	select {
	case <-process.Elected(): // of a manager without leader election: it has started
		return true
	default:
	}
	v := within(reflect.ValueOf(process), "started")
	return locked && v.Kind() == reflect.Bool && v.Bool()
}

var (
	errStarted = errors.New("the election is fenced, and perterm.Lead was called when the manager of the process had started, or was starting, so that its clients send no tokens: call it before")
	errShared  = errors.New("the election is fenced, and manager.Options.HTTPClient is one without a transport of its own, so that it sends no tokens: give it one, or leave it to the manager")
)
