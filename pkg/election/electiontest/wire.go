package electiontest

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// Wire returns a transport that has a handler serve requests, without a network: for a rest.Config in testing/synctest,
// whose time stands still while a goroutine waits for a connection.
func Wire(handler http.Handler) http.RoundTripper { return wire{handler} }

type wire struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. The handler's context ends when the answer's body is closed, or the request's
// does.
func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	body, sent := io.Pipe()
	a := &wireAnswer{header: http.Header{}, begun: make(chan struct{}), sent: sent}
	served := req.Clone(ctx)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	go func() {
		defer cancel()
		w.handler.ServeHTTP(a, served)
		a.WriteHeader(http.StatusOK) // if it has written nothing
		_ = sent.Close()
		_ = served.Body.Close()
	}()
	select {
	case <-a.begun:
		stop := context.AfterFunc(ctx, func() { _ = sent.CloseWithError(context.Cause(ctx)) })
		return &http.Response{
			StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: a.sentHeader, ContentLength: -1, Request: req, Body: &wireBody{body, func() { stop(); cancel() }},
		}, nil
	case <-req.Context().Done():
		cancel()
		_ = body.Close()
		return nil, req.Context().Err()
	}
}

// wireAnswer is the handler's side of an answer.
type wireAnswer struct {
	header, sentHeader http.Header
	status             int
	once               sync.Once
	begun              chan struct{} // closed when status and sentHeader are there
	sent               *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (a *wireAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *wireAnswer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sentHeader = status, a.header.Clone()
		close(a.begun)
	})
}

// Write implements http.ResponseWriter.
func (a *wireAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.sent.Write(p)
}

// Flush implements http.Flusher: nothing is kept.
func (a *wireAnswer) Flush() { a.WriteHeader(http.StatusOK) }

// wireBody is the client's side of it.
type wireBody struct {
	*io.PipeReader
	end func()
}

// Close ends the request.
func (b *wireBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}

var _ http.Flusher = (*wireAnswer)(nil)
