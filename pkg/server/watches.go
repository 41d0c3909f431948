package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// maxWatchStarts is how many watches of clients begin at once on one replica. The start of a watch takes milliseconds, unless
// it sends many objects. Then each start ends sooner if fewer compete.
const maxWatchStarts = 50

// watches limits how many watches are open and how many begin at once. An open watch takes some 60 KiB. A watch that begins may
// send all objects there are. One user may have half of each limit, so that nobody shuts out all others. Watches of this
// process are not counted.
//
// watches also ends watches whose clients read nothing: each would hold its place for ever.
type watches struct {
	// limit is how many watches may be open. 0: no limit.
	limit int
	// starts has a place for each watch that begins.
	starts chan struct{}
	// patience is how long a watch waits for a place to begin. timeout is how long its start may take, as for a list, and how
	// long its client may read nothing.
	patience, timeout time.Duration
	serializer        runtime.NegotiatedSerializer
	// tenantOf returns the tenant for whom the watch in ctx counts.
	tenantOf func(context.Context) string

	mu      sync.Mutex
	open    int
	users   map[string]*watcher // users with open watches, by name
	tenants map[string]int      // how many watches tenants have open
}

// watcher is a user with open watches.
type watcher struct {
	open   int
	starts chan struct{}
}

func newWatches(limit int, requestTimeout time.Duration, tenantOf func(context.Context) string, s runtime.NegotiatedSerializer) *watches {
	return &watches{
		limit: limit, starts: make(chan struct{}, maxWatchStarts), patience: requestTimeout / 4, timeout: requestTimeout, serializer: s,
		tenantOf: tenantOf, users: map[string]*watcher{}, tenants: map[string]int{},
	}
}

func (s *watches) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		switch {
		case !ok || info.Verb != "watch":
			next.ServeHTTP(w, req)
		case isOwn(req):
			_ = deliveryFrom(req.Context()).until(time.Time{}) // cannot fail: the deadline was set before
			next.ServeHTTP(w, req)
		default:
			s.serve(next, w, req)
		}
	})
}

func (s *watches) serve(next http.Handler, w http.ResponseWriter, req *http.Request) {
	who, leave := s.enter(nameOf(req.Context()), s.tenantOf(req.Context()))
	if who == nil {
		s.refuse(w, req, "too many watches are open, or too many of them are of this user or logical cluster: close some, or raise --max-watches")
		return
	}
	defer leave()
	leaveStart, ok := s.start(req.Context(), who)
	if !ok {
		s.refuse(w, req, "too many watches begin at this moment: try again")
		return
	}
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
		leaveStart()
		flowcontrol.WatchInitialized(ctx) // the watch leaves its places among requests
	}))
	defer begun.Signal()
	stall := newStall(s.timeout, a.end)
	defer stall.timer.Stop()
	taken := &takenAnswer{ResponseWriter: w, stall: stall}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(taken), req.WithContext(flowcontrol.WithInitializationSignal(ctx, begun)))
}

func (s *watches) refuse(w http.ResponseWriter, req *http.Request, message string) {
	w.Header().Set("Retry-After", "1")
	responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(message, 1), s.serializer, schema.GroupVersion{Version: "v1"}, w, req)
}

func nameOf(ctx context.Context) string {
	if who, ok := request.UserFrom(ctx); ok {
		return who.GetName()
	}
	return ""
}

// enter counts a watch of a user and a tenant until leave is called. It returns nil if a limit is reached.
func (s *watches) enter(name, tenant string) (who *watcher, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who = s.users[name]
	if s.limit > 0 && (s.open >= s.limit || who != nil && who.open >= max(1, s.limit/2) || s.tenants[tenant] > 0 && s.tenants[tenant] >= s.limit-s.open) {
		return nil, nil
	}
	if who == nil {
		who = &watcher{starts: make(chan struct{}, maxWatchStarts/2)}
		s.users[name] = who
	}
	s.open++
	who.open++
	s.tenants[tenant]++
	return who, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if who.open--; who.open == 0 {
			delete(s.users, name)
		}
		if s.tenants[tenant]--; s.tenants[tenant] == 0 {
			delete(s.tenants, tenant)
		}
	}
}

// start waits for a place among the watches that begin: first among those of its user, then among all.
func (s *watches) start(ctx context.Context, who *watcher) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if !take(ctx, who.starts) {
		return nil, false
	}
	if !take(ctx, s.starts) {
		<-who.starts
		return nil, false
	}
	return func() {
		<-s.starts
		<-who.starts
	}, true
}

func take(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
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

// during starts the clock of a write. done stops it.
func (s *stall) during() (done func() bool) {
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
