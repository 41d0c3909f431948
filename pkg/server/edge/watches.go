package edge

import (
	"bufio"
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
)

// watches limits how many watches are open. An open watch takes some 60 KiB. One user may have half of the limit, and a
// tenant as many as are free, so that nobody shuts out all others. Watches of this process are not counted. A watch
// that begins has its places among the requests (package fairness).
//
// watches also ends watches whose clients read nothing: each would hold its place for ever.
type watches struct {
	// limit is how many watches may be open. 0: no limit.
	limit int
	// timeout is how long the start of a watch may take, as for a list, and how long its client may read nothing.
	timeout    time.Duration
	serializer runtime.NegotiatedSerializer
	// flowOf returns for whom the watch in ctx counts.
	flowOf func(context.Context) fairness.Flow

	mu      sync.Mutex
	open    int
	users   map[string]int // how many watches users have open, as they are counted in all clusters
	tenants map[string]int // the same of tenants
}

func newWatches(limit int, requestTimeout time.Duration, flowOf func(context.Context) fairness.Flow, s runtime.NegotiatedSerializer) *watches {
	return &watches{limit: limit, timeout: requestTimeout, serializer: s, flowOf: flowOf, users: map[string]int{}, tenants: map[string]int{}}
}

func (s *watches) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		switch {
		case !ok || info.Verb != "watch":
			next.ServeHTTP(w, req)
		case identity.IsOwn(req):
			_ = deliveryFrom(req.Context()).until(time.Time{}) // cannot fail: the deadline was set before
			next.ServeHTTP(w, req)
		default:
			s.serve(next, w, req)
		}
	})
}

func (s *watches) serve(next http.Handler, w http.ResponseWriter, req *http.Request) {
	flow := s.flowOf(req.Context())
	leave := s.enter(cmp.Or(flow.Person, flow.User), flow.Tenant)
	if leave == nil {
		s.refuse(w, req, "too many watches are open, or too many of them are of this user or logical cluster: close some, or raise --max-watches")
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	a := deliveryFrom(ctx)
	_ = a.until(time.Time{}) // cannot fail: the deadline was set before
	late := time.AfterFunc(s.timeout, func() {
		cancel()
		a.end() // the handler may be blocked in a write
	})
	begun := watchBegun(sync.OnceFunc(func() {
		late.Stop()
		flowcontrol.WatchInitialized(ctx) // the watch leaves its places among requests
	}))
	defer begun.Signal()
	stall := newStall(s.timeout, a.end)
	defer stall.timer.Stop()
	taken := &takenAnswer{ResponseWriter: w, stall: stall}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(taken), req.WithContext(flowcontrol.WithInitializationSignal(ctx, begun)))
}

func (s *watches) refuse(w http.ResponseWriter, req *http.Request, message string) {
	refuse(w, req, s.serializer, apierrors.NewTooManyRequests(message, 1))
}

// enter counts a watch of a user and a tenant until leave is called. It returns nil if a limit is reached.
func (s *watches) enter(user, tenant string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 && (s.open >= s.limit || s.users[user] >= max(1, s.limit/2) || s.tenants[tenant] > 0 && s.tenants[tenant] >= s.limit-s.open) {
		return nil
	}
	s.count(user, tenant, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count(user, tenant, -1)
	}
}

// count counts n more watches. The caller holds mu.
func (s *watches) count(user, tenant string, n int) {
	s.open += n
	if s.users[user] += n; s.users[user] == 0 {
		delete(s.users, user)
	}
	if s.tenants[tenant] += n; s.tenants[tenant] == 0 {
		delete(s.tenants, tenant)
	}
}

// watchBegun is called by upstream's storage when it has sent all objects that existed when the watch began.
type watchBegun func()

// Signal implements flowcontrol.InitializationSignal.
func (b watchBegun) Signal() { b() }

// Wait implements flowcontrol.InitializationSignal. Nobody waits here.
func (watchBegun) Wait() {}

// stall ends a watch if its client reads nothing during a write for as long as patience.
type stall struct {
	patience time.Duration
	timer    *time.Timer
}

func newStall(patience time.Duration, end func()) *stall {
	timer := time.AfterFunc(patience, end)
	timer.Stop()
	return &stall{patience, timer}
}

// during starts the clock of a write, and stop ends it.
func (s *stall) during() (stop func() bool) {
	s.timer.Reset(s.patience)
	return s.timer.Stop
}

// takenAnswer is an answer whose writes are timed by a stall.
type takenAnswer struct {
	http.ResponseWriter
	stall *stall
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *takenAnswer) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write implements http.ResponseWriter.
func (t *takenAnswer) Write(p []byte) (int, error) {
	defer t.stall.during()()
	return t.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (t *takenAnswer) Flush() {
	if flusher, ok := t.ResponseWriter.(http.Flusher); ok {
		defer t.stall.during()()
		flusher.Flush()
	}
}

// Hijack implements http.Hijacker: a watch over a websocket writes to the connection itself.
func (t *takenAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := t.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	taken := &takenConn{Conn: conn, stall: t.stall}
	buffered.Writer.Reset(taken)
	return taken, buffered, nil
}

// takenConn is a connection whose writes are timed by a stall.
type takenConn struct {
	net.Conn
	stall *stall
}

// Write implements io.Writer.
func (t *takenConn) Write(p []byte) (int, error) {
	defer t.stall.during()()
	return t.Conn.Write(p)
}

var (
	_ flowcontrol.InitializationSignal     = watchBegun(nil)
	_ responsewriter.UserProvidedDecorator = (*takenAnswer)(nil)
)
