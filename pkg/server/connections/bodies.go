package connections

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// WithBodyDeadline returns a handler whose requests' bodies must have arrived after timeout. Upstream's deadlines end
// the handler, but net/http then waits for the rest of the body for ever, even if the request was refused.
func WithBodyDeadline(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength == 0 || req.Body == nil || req.Body == http.NoBody {
			next.ServeHTTP(w, req)
			return
		}
		controller := http.NewResponseController(w)
		if err := controller.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			klog.FromContext(req.Context()).Error(err, "The deadline for a request's body cannot be set, so its sender may hold the request for ever: report this fault of the server")
		}
		if req.ProtoMajor > 1 { // HTTP/2: the deadline applies to this request's stream only
			next.ServeHTTP(w, req)
			return
		}
		req.Body = &deadlineBody{ReadCloser: req.Body, lift: sync.OnceFunc(func() { _ = controller.SetReadDeadline(time.Time{}) })}
		next.ServeHTTP(w, req)
	})
}

// deadlineBody removes the deadline of HTTP/1 once the whole body has been read. Otherwise it would end the connection,
// and with it a request that takes longer to answer.
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
