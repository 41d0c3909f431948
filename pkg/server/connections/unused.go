package connections

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// goodbye is how long a client may take to close a connection whose server shuts down. HTTP/2 servers take a second.
const goodbye = 2 * time.Second

// connection is a connection that counts until it is closed.
type connection struct {
	net.Conn
	leave    func()
	requests atomic.Int64 // under way
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.leave()
	return c.Conn.Close()
}

// remember returns a connection that is found by its client's address while it is open.
func (c *Listener) remember(conn net.Conn, leave func()) net.Conn {
	out := &connection{Conn: conn}
	address := conn.RemoteAddr().String()
	out.leave = sync.OnceFunc(func() {
		c.byRemote.CompareAndDelete(address, out)
		leave()
	})
	c.byRemote.Store(address, out)
	return out
}

// Serving returns a handler for requests over the connections. CloseUnused knows by it which of them are in use, so
// that it must be the first handler of all.
func (c *Listener) Serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if over, ok := c.byRemote.Load(req.RemoteAddr); ok {
			over := over.(*connection)
			over.requests.Add(1)
			defer over.requests.Add(-1)
		}
		next.ServeHTTP(w, req)
	})
}

// Close implements net.Listener. It may be called more than once.
func (c *Listener) Close() error { return c.close() }

// CloseUnused waits until the listener is closed, which is how http.Server.Shutdown begins. From then on it closes
// connections over which no request is under way, and that clients have had time to close. When ctx ends it closes
// those that are left, and returns.
//
// Shutdown tells the connections of HTTP/2 once that they should end. It waits for one that is made at that moment
// until it gives up, and leaves it open then (golang/go#81153).
func (c *Listener) CloseUnused(ctx context.Context) {
	defer c.closeEach(func(*connection) bool { return true })
	select {
	case <-c.closed:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(goodbye)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.closeEach(func(one *connection) bool { return one.requests.Load() == 0 })
		case <-ctx.Done():
			return
		}
	}
}

func (c *Listener) closeEach(which func(*connection) bool) {
	for _, found := range c.byRemote.Range {
		if one := found.(*connection); which(one) {
			_ = one.Close()
		}
	}
}
