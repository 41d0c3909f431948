package embed

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
)

// gate is in the way from stores to etcd. While it is closed, what is sent waits in it: that is a process, or a
// network, that stops after everything has been checked, and goes on later.
type gate struct {
	counts  atomic.Bool // for connections that are made from now on
	waiting atomic.Int32

	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// pass returns when the gate is open.
func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	g.waiting.Add(1)
	<-open
	g.waiting.Add(-1)
}

// lookup is an egressselector.Lookup.
func (g *gate) lookup(egressselector.NetworkContext) (utilnet.DialFunc, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || !g.counts.Load() {
			return conn, err
		}
		return &gated{conn, g}, nil
	}, nil
}

type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}
