package server

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
)

// delivery is of the answer to a request: who takes nothing must not hold for ever what stands behind its answer.
type delivery struct {
	mu sync.Mutex
	// controller is nil once the request's handler has returned: it is of no use then, and net/http panics.
	controller *http.ResponseController
}

type deliveryKey struct{}

// deliveryFrom returns the answer of the request that has ctx. There always is one.
func deliveryFrom(ctx context.Context) *delivery {
	if a, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		return a
	}
	return &delivery{}
}

// until sets when the answer must have been taken; the zero time: it may take as long as it likes.
func (a *delivery) until(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.controller == nil {
		return nil
	}
	return a.controller.SetWriteDeadline(t)
}

// end lets what is written to the answer fail, also what is being written.
func (a *delivery) end() { _ = a.until(time.Unix(1, 0)) } // no answer is there to be ended, at the worst

func (a *delivery) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.controller = nil
}

// withAnswerDeadline returns a handler whose clients must have taken their answers after twice the time that a request has:
// once to be handled, once to be answered. Upstream's deadline ends neither a handler that writes, nor what net/http writes
// after it: a client whose window is 0 would hold them, and a place of the limit on requests in flight, for ever.
func withAnswerDeadline(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := &delivery{controller: http.NewResponseController(w)}
		defer a.close()
		if err := a.until(time.Now().Add(2 * timeout)); err != nil {
			klog.FromContext(req.Context()).Error(err, "A client may take as long as it likes to take an answer: report this, it is a fault of the server")
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), deliveryKey{}, a)))
	})
}

// withAnswersHeld returns a handler that writes the answers of which holds says so when next has returned. Errors, and what
// everybody may read, need no rights and can be made long by a long URL: written by next, each holds a place of the limit on
// requests in flight for as long as its client takes nothing.
func withAnswersHeld(holds func(status int) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		held := &heldAnswer{ResponseWriter: w, holds: holds}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), req)
		held.release()
	})
}

func allAnswers(int) bool { return true }

func errorsOnly(status int) bool { return status >= http.StatusBadRequest }

// heldAnswer keeps an answer back if holds says so of its status, and passes on any other.
type heldAnswer struct {
	http.ResponseWriter
	holds  func(status int) bool
	status int // 0 before there is one
	body   bytes.Buffer
}

// is reports whether there is an answer that is kept back.
func (h *heldAnswer) is() bool { return h.status != 0 && h.holds(h.status) }

// release writes what was kept back.
func (h *heldAnswer) release() {
	if h.is() {
		h.ResponseWriter.WriteHeader(h.status)
		_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client has gone
	}
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (h *heldAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		h.status = status
	}
	if !h.is() {
		h.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (h *heldAnswer) Write(p []byte) (int, error) {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	if h.is() {
		return h.body.Write(p)
	}
	return h.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (h *heldAnswer) Flush() {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	if flusher, ok := h.ResponseWriter.(http.Flusher); ok && !h.is() {
		flusher.Flush()
	}
}

var _ responsewriter.UserProvidedDecorator = (*heldAnswer)(nil)
