package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
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
// in a queue would wait for others that do not leave. Connections that this process makes with dial are always let in: a leader
// with too many clients must still renew its lease.
type connections struct {
	net.Listener
	log              klog.Logger
	total, perClient int

	mu   sync.Mutex
	open int
	// clients has the number of open connections of each client that has any.
	clients map[netip.Prefix]int
	// own are the local addresses of connections that dial is about to make and that Accept has not returned yet.
	own map[netip.AddrPort]struct{}
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
	return &connections{
		Listener: listener, log: log, total: total, perClient: perClient,
		clients: map[netip.Prefix]int{}, own: map[netip.AddrPort]struct{}{},
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
	address, client := clientOf(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, own := c.own[address]
	delete(c.own, address)
	switch {
	case own:
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

// clientOf returns a connection's remote address and the client that it counts for. For IPv6 the client is the /64 network.
func clientOf(conn net.Conn) (netip.AddrPort, netip.Prefix) {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, netip.Prefix{}
	}
	address := unmapped(tcp.AddrPort())
	bits := 64
	if address.Addr().Is4() {
		bits = 32
	}
	client, _ := address.Addr().WithZone("").Prefix(bits)
	return address, client
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// dial connects to the listener from within this process. It binds the socket itself, before it connects, and announces the
// local address, so that Accept recognises the connection.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var own netip.AddrPort
	dialer := net.Dialer{KeepAlive: clientKeepAlive, Control: func(_, address string, raw syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("cannot connect to %s: %w", address, err)
		}
		return raw.Control(func(fd uintptr) { own = c.announce(int(fd), target.Addr()) })
	}}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		c.mu.Lock()
		delete(c.own, own)
		c.mu.Unlock()
		return nil, err
	}
	return conn, nil
}

// announce binds a socket to host and a free port, and records the address. If that fails, the connection counts like any
// other.
func (c *connections) announce(socket int, host netip.Addr) netip.AddrPort {
	var bind unix.Sockaddr = &unix.SockaddrInet6{Addr: host.As16()}
	if host.Is4() {
		bind = &unix.SockaddrInet4{Addr: host.As4()}
	}
	if unix.Bind(socket, bind) != nil {
		return netip.AddrPort{}
	}
	bound, err := unix.Getsockname(socket)
	if err != nil {
		return netip.AddrPort{}
	}
	own := netip.AddrPortFrom(host.Unmap(), portOf(bound))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own[own] = struct{}{}
	return own
}

func portOf(address unix.Sockaddr) uint16 {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
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
		Name: "regent_api_connections", StabilityLevel: metrics.ALPHA, Help: "Open connections to the API, those of this process itself among them.",
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
