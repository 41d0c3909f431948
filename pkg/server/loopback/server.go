package loopback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

// Server is this process's own API server, for its Clients. They call its handler, and there is no connection between:
// nothing to be opened when a term begins, nothing that the traffic of others could hold up, and nobody else who could
// answer. Everything in the handler applies to them as to users: authentication, authorization, admission, audit.
//
// The zero value has no handler yet.
type Server struct{ handler atomic.Pointer[http.Handler] }

// Serve makes handler answer all requests from now on.
func (s *Server) Serve(handler http.Handler) { s.handler.Store(&handler) }

var (
	errNotServing = errors.New("this process does not serve its API yet: wait until it does")
	errAborted    = errors.New("the API server has given up the request")
)

// RoundTrip implements http.RoundTripper. It runs the handler, and returns when that has returned. A watch is answered
// as soon as the handler begins to answer, and its handler runs until the request's context ends or the answer's body
// is closed, which waits for it.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	defer func() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
	}()
	handler := s.handler.Load()
	if handler == nil {
		return nil, errNotServing
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	// The context carries nothing of the caller's: no identity, no logical cluster.
	ctx, cancel := context.WithCancel(context.Background())
	unlink := context.AfterFunc(req.Context(), cancel)
	end := func() {
		unlink()
		cancel()
	}
	if isWatch(req.URL) {
		return watch(*handler, received(ctx, req), req, end) //nolint:contextcheck // the context is linked, see above
	}
	defer end()
	return ask(*handler, received(ctx, req), req) //nolint:contextcheck // the context is linked, see above
}

func isWatch(u *url.URL) bool {
	watch, err := strconv.ParseBool(u.Query().Get("watch"))
	return err == nil && watch
}

// received returns the request as a server sees it. The caller's span, if it has one, travels in a header, as between
// processes.
func received(ctx context.Context, sent *http.Request) *http.Request {
	req := &http.Request{
		Method: sent.Method, URL: &url.URL{Path: sent.URL.Path, RawPath: sent.URL.RawPath, RawQuery: sent.URL.RawQuery},
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: sent.Header.Clone(), Body: sent.Body, ContentLength: sent.ContentLength,
		Host: sent.URL.Host, RemoteAddr: "127.0.0.1:0", RequestURI: sent.URL.RequestURI(),
	}
	if req.Body == nil {
		req.Body = http.NoBody
	}
	propagation.TraceContext{}.Inject(sent.Context(), propagation.HeaderCarrier(req.Header)) //nolint:contextcheck // the span is the caller's
	return req.WithContext(ctx)
}

// ask returns the complete answer.
func ask(handler http.Handler, req, sent *http.Request) (*http.Response, error) {
	var body bytes.Buffer
	a := &answer{header: http.Header{}, body: &body}
	err := handle(handler, a, req)
	if ended := sent.Context().Err(); ended != nil {
		return nil, ended // whatever the handler wrote, it is about that
	}
	if err != nil {
		return nil, err
	}
	a.WriteHeader(http.StatusOK) // unless it has written another
	resp := a.response(sent, io.NopCloser(&body))
	resp.ContentLength = int64(body.Len())
	return resp, nil
}

// watch returns an answer whose body is what the handler goes on to write.
func watch(handler http.Handler, req, sent *http.Request, end func()) (*http.Response, error) {
	out, in := io.Pipe()
	a := &answer{header: http.Header{}, body: in, begun: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer end()
		err := handle(handler, a, req)
		a.WriteHeader(http.StatusOK)
		_ = in.CloseWithError(err) // nil: io.EOF
	}()
	stop := func() {
		end()
		_ = out.Close()
		<-ended
	}
	select {
	case <-a.begun:
		resp := a.response(sent, &watchBody{out, stop})
		resp.ContentLength = -1
		return resp, nil
	case <-sent.Context().Done():
		stop()
		return nil, sent.Context().Err()
	}
}

// handle runs the handler. It returns an error if the handler panics, as upstream's do to break off an answer.
func handle(handler http.Handler, w http.ResponseWriter, req *http.Request) (err error) {
	defer func() {
		switch p := recover(); {
		case p == http.ErrAbortHandler: //nolint:errorlint // a panic's value, compared as net/http does
			err = errAborted
		case p != nil:
			err = fmt.Errorf("%w: panic: %v", errAborted, p)
		}
	}()
	handler.ServeHTTP(w, req)
	return nil
}

// watchBody is the body of a watch's answer.
type watchBody struct {
	*io.PipeReader
	stop func()
}

// Close ends the watch, and returns when its handler has returned.
func (b *watchBody) Close() error {
	b.stop()
	return nil
}

// answer is what a handler writes to. A handler's goroutines may use it one after the other.
type answer struct {
	header http.Header
	body   io.Writer
	begun  chan struct{} // closed by WriteHeader; may be nil

	once   sync.Once
	status int
	sent   http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return // informational
	}
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		if a.begun != nil {
			close(a.begun)
		}
	})
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier. Upstream takes a writer without it for one that cannot flush.
func (a *answer) CloseNotify() <-chan bool { return nil }

// SetReadDeadline is for http.ResponseController. It does nothing: this process sends all of a request at once.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController. It does nothing: this process reads all of an answer at once.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

func (a *answer) response(sent *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(a.status) + " " + http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: a.sent, Body: body, Request: sent,
	}
}
