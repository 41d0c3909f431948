// Package connections limits how many connections a server accepts.
package connections

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

const (
	// clientKeepAlive is upstream's period.
	clientKeepAlive = 3 * time.Minute
	// refusalReminder is the least time between two log lines about refused connections.
	refusalReminder = time.Minute
)

// Limits are how many connections may be open.
type Limits struct {
	// Total is how many there may be at all. 0: three quarters of the file descriptors that the process may open,
	// which is the upper limit in any case.
	Total int
	// PerClient is the same for one IP address (IPv6: one /64 network). 0: half of Total.
	PerClient int
}

// InForce returns the limits that apply in this process.
func (l Limits) InForce() Limits {
	if possible := descriptors() / 4 * 3; possible > 0 && (l.Total == 0 || possible < l.Total) {
		l.Total = possible
	}
	l.PerClient = cmp.Or(l.PerClient, l.Total/2)
	return l
}

// Listener closes connections beyond the limits as soon as it has accepted them, because clients in a queue would wait
// for others that do not leave. Make it with Limit. All methods may be called at any time on any goroutine.
type Listener struct {
	net.Listener
	log              klog.Logger
	total, perClient int
	byRemote         sync.Map      // *connection by address: those that are open
	closed           chan struct{} // by Close
	close            func() error

	mu   sync.Mutex
	open int
	// clients has the number of open connections of each client that has any.
	clients map[netip.Prefix]int
	// refused counts the refusals since reported, when the log last told of them.
	refused  int
	reported time.Time
}

// Limit returns a listener that lets in no more connections than that. It logs who is refused.
func Limit(ctx context.Context, inner net.Listener, limits Limits) *Listener {
	registerMetrics()
	log := klog.FromContext(ctx)
	inForce := limits.InForce()
	if inForce.Total < limits.Total {
		log.Info("The limit of open files allows fewer connections than configured: raise it (ulimit -n) if this process needs more",
			"connections", inForce.Total, "max-connections", limits.Total)
	}
	closed := make(chan struct{})
	return &Listener{
		Listener: inner, log: log, total: inForce.Total, perClient: inForce.PerClient, clients: map[netip.Prefix]int{},
		closed: closed, close: sync.OnceValue(func() error { defer close(closed); return inner.Close() }),
	}
}

// descriptors returns how many files and sockets the process may open, or 0 if that is unknown.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}

// Accept implements net.Listener.
func (c *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave, ok := c.admit(conn); ok {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetKeepAlivePeriod(clientKeepAlive)
			}
			return c.remember(conn, leave), nil
		}
		_ = conn.Close()
	}
}

// admit counts a connection. leave must be called when the connection closes. ok is false if a limit is reached.
func (c *Listener) admit(conn net.Conn) (leave func(), ok bool) {
	client := clientOf(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.total > 0 && c.open >= c.total:
		c.refuse("total", client)
		return nil, false
	case c.perClient > 0 && c.clients[client] >= c.perClient:
		c.refuse("client", client)
		return nil, false
	}
	c.open++
	c.clients[client]++
	openConnections.Set(float64(c.open))
	return func() { c.leave(client) }, true
}

func (c *Listener) leave(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	openConnections.Set(float64(c.open))
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
}

// refuse counts a refusal, and logs it if the last log line is old enough. The caller holds mu.
func (c *Listener) refuse(limit string, client netip.Prefix) {
	refusedConnections.WithLabelValues(limit).Inc()
	c.refused++
	if time.Since(c.reported) < refusalReminder {
		return
	}
	c.log.Error(nil, "Connections are refused: find out who opens so many, or raise --max-connections and --max-connections-per-client",
		"limit", limit, "client", client, "refused", c.refused, "open", c.open, "max-connections", c.total, "max-connections-per-client", c.perClient)
	c.refused, c.reported = 0, time.Now()
}

// clientOf returns the client that a connection counts for.
func clientOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return NetworkOf(tcp.AddrPort().Addr())
}

// NetworkOf returns what counts as one client of those that are at an address: the address, or for IPv6 its /64
// network.
func NetworkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	client, _ := address.Prefix(bits)
	return client
}

var (
	openConnections = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_api_connections", StabilityLevel: metrics.ALPHA, Help: "Open connections to the API.",
	})
	refusedConnections = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_api_connections_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Connections that were closed at once, because all together (total) or those of one client (client) were too many.",
	}, []string{"limit"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(openConnections, refusedConnections)
	for _, limit := range []string{"total", "client"} {
		refusedConnections.WithLabelValues(limit).Add(0)
	}
})

var _ net.Listener = (*Listener)(nil)
