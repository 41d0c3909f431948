package connections

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Farewell has clients leave a server before it closes its listener. A request that is on its way while the listener
// closes would be refused otherwise: upstream answers 503 from then on, though clients learn of it only later. The zero
// value is ready to use. All methods may be called on any goroutine.
type Farewell struct {
	begun atomic.Bool
}

// Wait returns after delay, during which the server goes on serving. In the first half load balancers learn that it
// is not ready. In the second half each answer ends its connection once the requests on it are done, and their clients
// connect again, to another server if there is one.
func (f *Farewell) Wait(delay time.Duration) {
	<-time.After(delay / 2)
	f.begun.Store(true)
	<-time.After(delay - delay/2)
}

// Serving returns a handler for requests of clients who are to leave. An upgraded connection is left as it is.
func (f *Farewell) Serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if f.begun.Load() && req.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close") // which HTTP/2 says as GOAWAY
		}
		next.ServeHTTP(w, req)
	})
}
