package edge

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
)

// delivery controls how long the client of one request may take to read the answer. A client that reads nothing must
// not hold a handler, or a place of the limit on requests in flight, for ever.
type delivery struct {
	mu sync.Mutex
	// controller is nil once the request's handler has returned: net/http panics if it is used after that.
	controller *http.ResponseController
}

type deliveryKey struct{}

// deliveryFrom returns the delivery of the request that ctx belongs to. It never returns nil.
func deliveryFrom(ctx context.Context) *delivery {
	if a, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		return a
	}
	return &delivery{}
}

// until sets the time by which the client must have read the answer. The zero time removes the deadline.
func (a *delivery) until(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.controller == nil {
		return nil
	}
	return a.controller.SetWriteDeadline(t)
}

// end makes all writes of the answer fail, including one that is under way. If the answer is over, that does no harm.
func (a *delivery) end() { _ = a.until(time.Unix(1, 0)) }

// endAnswer ends the answer of the request in ctx.
func endAnswer(ctx context.Context) { deliveryFrom(ctx).end() }

func (a *delivery) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.controller = nil
}

// withAnswerDeadline returns a handler whose clients must have read the answer after 2*timeout: timeout to handle the
// request and timeout to deliver the answer. Upstream's own deadline ends neither a handler that is writing, nor what
// net/http writes after it. Without this one, a client with a TCP window of 0 holds both, and a place of the limit on
// requests in flight, for ever.
func withAnswerDeadline(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := &delivery{controller: http.NewResponseController(w)}
		defer a.close()
		if err := a.until(time.Now().Add(2 * timeout)); err != nil {
			klog.FromContext(req.Context()).Error(err, "The deadline for reading an answer cannot be set, so its client may hold it for ever: report this fault of the server")
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), deliveryKey{}, a)))
	})
}

// withAnswersHeld returns a handler that keeps back each answer whose status holds selects, and writes it only when
// next has returned. It is for errors and public paths: everybody may ask for these, and a long URL makes the answer
// long. If next wrote them, each would hold a place of the limit on requests in flight until its client has read it.
// answered is told the status of each answer, 0 if next set none.
func withAnswersHeld(holds func(status int) bool, answered func(req *http.Request, status int), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		held := &heldAnswer{ResponseWriter: w, holds: holds}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), req)
		answered(req, held.status)
		held.release()
	})
}

// uncounted is told of answers, and does nothing.
func uncounted(*http.Request, int) {}

func allAnswers(int) bool { return true }

func errorsOnly(status int) bool { return status >= http.StatusBadRequest }

// longestHeld is the longest answer that is kept back, in bytes. What this server says of errors, and on public paths,
// is shorter; what others have it say, such as a webhook, need not be. Of a longer one only the status is answered, and
// that it was too long: passed on, it would hold a place for as long as its client does not read.
const longestHeld = 1 << 20

// heldAnswer keeps an answer back if holds selects its status, and passes on any other.
type heldAnswer struct {
	http.ResponseWriter
	holds   func(status int) bool
	status  int // 0 until the handler has set it
	body    bytes.Buffer
	tooLong bool
}

// is reports whether an answer is being kept back.
func (h *heldAnswer) is() bool { return h.status != 0 && h.holds(h.status) }

// release writes the answer that was kept back, if there is one.
func (h *heldAnswer) release() {
	if !h.is() {
		return
	}
	if h.tooLong {
		for _, about := range []string{"Content-Length", "Content-Encoding"} {
			h.Header().Del(about)
		}
		h.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(&h.body, "The answer had more than %d bytes, and is left out.\n", longestHeld)
	}
	h.ResponseWriter.WriteHeader(h.status)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // an error means that the client has gone
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
		if h.tooLong = h.tooLong || h.body.Len()+len(p) > longestHeld; h.tooLong {
			h.body = bytes.Buffer{}
			return len(p), nil
		}
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
