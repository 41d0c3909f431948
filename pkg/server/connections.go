package server

import (
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

// connections is the API's listener. It closes connections beyond the limits as soon as it has accepted them, because clients
// in a queue would wait for others that do not leave. This process itself needs none: see package loopback.
type connections struct {
	net.Listener
	log              klog.Logger
	total, perClient int

	mu   sync.Mutex
	open int
	// clients has the number of open connections of each client that has any.
	clients map[netip.Prefix]int
	// refused counts the refusals since told, when the log last reported them.
	refused int
	told    time.Time
}

func newConnections(ctx context.Context, listener net.Listener, limits Limits) *connections {
	registerConnectionMetrics()
	log := klog.FromContext(ctx)
	total, perClient := limits.Connections, limits.ConnectionsPerClient
	if possible := descriptors() / 4 * 3; possible > 0 && (total == 0 || possible < total) {
		log.Info("The limit of open files allows fewer connections than configured: raise it (ulimit -n) if this replica needs more",
			"connections", possible, "max-connections", total)
		total = possible
	}
	if perClient == 0 {
		perClient = total / 2
	}
	return &connections{Listener: listener, log: log, total: total, perClient: perClient, clients: map[netip.Prefix]int{}}
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
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave, ok := c.admit(conn); ok {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetKeepAlivePeriod(clientKeepAlive)
			}
			return &connection{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		_ = conn.Close()
	}
}

// admit counts a connection. leave must be called when the connection closes. ok is false if a limit is reached.
func (c *connections) admit(conn net.Conn) (leave func(), ok bool) {
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

func (c *connections) leave(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	openConnections.Set(float64(c.open))
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
}

// refuse counts a refusal, and logs it if the last log line is old enough. The caller holds mu.
func (c *connections) refuse(limit string, client netip.Prefix) {
	refusedConnections.WithLabelValues(limit).Inc()
	c.refused++
	if time.Since(c.told) < refusalReminder {
		return
	}
	c.log.Error(nil, "Connections are refused: find out who opens so many, or raise --max-connections and --max-connections-per-client",
		"limit", limit, "client", client, "refused", c.refused, "open", c.open, "max-connections", c.total, "max-connections-per-client", c.perClient)
	c.refused, c.told = 0, time.Now()
}

// clientOf returns the client that a connection counts for. For IPv6 that is the /64 network.
func clientOf(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	client, _ := address.Prefix(bits)
	return client
}

// connection is a connection that counts until it is closed.
type connection struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.leave()
	return c.Conn.Close()
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

var registerConnectionMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(openConnections, refusedConnections)
	for _, limit := range []string{"total", "client"} {
		refusedConnections.WithLabelValues(limit).Add(0)
	}
})

var _ net.Listener = (*connections)(nil)
