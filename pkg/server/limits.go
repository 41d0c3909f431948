package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
)

// applyTo sets the limits that upstream's handlers know.
func (l Limits) applyTo(c *genericapiserver.Config) {
	c.RequestTimeout = l.RequestTimeout
	c.MaxRequestsInFlight = l.RequestsInFlight
	c.MaxMutatingRequestsInFlight = l.MutatingRequestsInFlight
	c.GoawayChance = l.GoawayChance
	c.HSTSDirectives = l.HSTS
}

// withBodyDeadline returns a handler whose requests' bodies must have arrived after timeout. Upstream's deadlines end what
// handles a request, and leave net/http waiting for the rest of its body, for ever: also of requests that are refused.
func withBodyDeadline(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength == 0 || req.Body == nil || req.Body == http.NoBody {
			next.ServeHTTP(w, req)
			return
		}
		controller := http.NewResponseController(w)
		if err := controller.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			klog.FromContext(req.Context()).Error(err, "A request's body may take as long as its sender likes: report this, it is a fault of the server")
		}
		if req.ProtoMajor > 1 { // the deadline is of this request's stream only
			next.ServeHTTP(w, req)
			return
		}
		req.Body = &deadlineBody{ReadCloser: req.Body, lift: sync.OnceFunc(func() { _ = controller.SetReadDeadline(time.Time{}) })}
		next.ServeHTTP(w, req)
	})
}

// deadlineBody lifts the deadline of HTTP/1 when all has been read: it would end the whole connection, and with it a request
// that takes longer to answer.
type deadlineBody struct {
	io.ReadCloser
	lift func()
}

// Read implements io.Reader.
func (b *deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.lift()
	}
	return n, err
}

// watchStarts bounds how many watches begin at once: each may send all there is before it waits for what is new, and holds
// what its client has not taken. What this process watches itself is not counted.
type watchStarts struct {
	places chan struct{}
	// patience is how long a watch waits for a place, timeout how long its start may hold it: a list could take no longer.
	patience, timeout time.Duration
	serializer        runtime.NegotiatedSerializer
}

// maxWatchStarts is how many watches of clients begin at once on one replica. They are ready within milliseconds of each
// other unless they send much, and then the fewer compete for it the sooner each is done.
const maxWatchStarts = 50

func newWatchStarts(requestTimeout time.Duration, s runtime.NegotiatedSerializer) *watchStarts {
	return &watchStarts{places: make(chan struct{}, maxWatchStarts), patience: requestTimeout / 4, timeout: requestTimeout, serializer: s}
}

func (s *watchStarts) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || info.Verb != "watch" || isOwn(req) {
			next.ServeHTTP(w, req)
			return
		}
		if !s.enter(req.Context()) {
			err := apierrors.NewTooManyRequests("too many watches begin at this moment: try again", 1)
			w.Header().Set("Retry-After", "1")
			responsewriters.ErrorNegotiated(err, s.serializer, schema.GroupVersion{Version: "v1"}, w, req)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		late := time.AfterFunc(s.timeout, cancel)
		begun := watchBegun(sync.OnceFunc(func() {
			late.Stop()
			<-s.places
		}))
		defer begun.Signal()
		next.ServeHTTP(w, req.WithContext(flowcontrol.WithInitializationSignal(ctx, begun)))
	})
}

// watchBegun is called by upstream's storage once it has handed over all there was when the watch began.
type watchBegun func()

// Signal implements flowcontrol.InitializationSignal.
func (b watchBegun) Signal() { b() }

// Wait implements flowcontrol.InitializationSignal. Nobody waits here.
func (watchBegun) Wait() {}

// enter waits for a place.
func (s *watchStarts) enter(ctx context.Context) bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
	}
	patience := time.NewTimer(s.patience)
	defer patience.Stop()
	select {
	case s.places <- struct{}{}:
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

var _ flowcontrol.InitializationSignal = watchBegun(nil)
