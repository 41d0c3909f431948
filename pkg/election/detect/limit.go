package detect

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// mostStrangers is how many connections there may be that have not shown the credential. One more replaces the
	// oldest connection of the address that has the most. A standby needs its place for some milliseconds only, so
	// idle connections cannot shut it out.
	mostStrangers = 64
	// mostAuthenticated is how many connections there may be that have shown it.
	mostAuthenticated = 256
	// shortestAcceptPause is the pause after a connection could not be accepted. It doubles with each failure in a
	// row.
	shortestAcceptPause = 5 * time.Millisecond
	longestAcceptPause  = time.Second
	// complainAgain is the shortest time between two log lines about that.
	complainAgain = time.Minute
)

// limitedListener bounds what connections to a probe cost its process, whoever makes them. A connection is a stranger's
// until it has shown the credential, and it must do so within patience.
type limitedListener struct {
	net.Listener
	name     string        // the Lease's name, for metrics
	patience time.Duration // how long a connection may be a stranger's
	logger   klog.Logger
	closing  func()        // closes closed, once
	closed   chan struct{} // closed by Close; ends pauses

	complained time.Time // owned by Accept's only caller

	mu            sync.Mutex
	strangers     []*limitedConn // oldest first
	authenticated int
}

func newLimitedListener(listener net.Listener, name string, patience time.Duration, logger klog.Logger) *limitedListener {
	closed := make(chan struct{})
	return &limitedListener{
		Listener: listener, name: name, patience: patience, logger: logger,
		closed: closed, closing: sync.OnceFunc(func() { close(closed) }),
	}
}

// limitedConn is a connection that the limits count.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	address  netip.Prefix
	late     *time.Timer // closes the connection unless it shows the credential in time

	// Guarded by the listener's mu.
	authenticated, gone bool
}

// Accept implements net.Listener. It fails only after Close. It retries all other failures, such as a lack of
// descriptors or of memory, because they pass.
func (l *limitedListener) Accept() (net.Conn, error) {
	for pause := shortestAcceptPause; ; pause = min(2*pause, longestAcceptPause) {
		conn, err := l.Listener.Accept()
		if err == nil {
			return l.enter(conn), nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if time.Since(l.complained) >= complainAgain {
			l.complained = time.Now()
			l.logger.Error(err, "The probe cannot accept a standby's connection, and tries again. Meanwhile standbys without contact do not notice if this process crashes. "+
				"Give the process more open files if it has none left")
		}
		l.makeRoom()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.closed:
		}
		timer.Stop()
	}
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.closing()
	return l.Listener.Close()
}

// enter counts a new connection as a stranger's.
func (l *limitedListener) enter(conn net.Conn) *limitedConn {
	c := &limitedConn{Conn: conn, listener: l, address: networkOf(conn.RemoteAddr())}
	l.mu.Lock()
	c.late = time.AfterFunc(l.patience, func() { l.expel(c, "late") })
	l.strangers = append(l.strangers, c)
	crowded := len(l.strangers) > mostStrangers
	l.mu.Unlock()
	if crowded {
		l.makeRoom()
	}
	return c
}

// makeRoom closes the oldest stranger's connection of the address that has the most; none if there are no strangers.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	first := firstOfMost(l.strangers)
	l.mu.Unlock()
	l.expel(first, "crowded")
}

// firstOfMost returns the first connection of the address that has the most of them; nil if there are none.
func firstOfMost(conns []*limitedConn) (first *limitedConn) {
	count := map[netip.Prefix]int{}
	for _, c := range conns {
		count[c.address]++
	}
	for _, c := range conns {
		if first == nil || count[c.address] > count[first.address] {
			first = c
		}
	}
	return first
}

// expel closes a connection unless it has shown the credential.
func (l *limitedListener) expel(c *limitedConn, reason string) {
	l.mu.Lock()
	stranger := slices.Contains(l.strangers, c)
	if stranger {
		c.leave()
	}
	l.mu.Unlock()
	if stranger {
		expelled.Inc(l.name, reason)
		_ = c.Conn.Close()
	}
}

// authenticate records that the connection has shown the credential. It returns false if there are too many such
// connections.
func (c *limitedConn) authenticate() bool {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.authenticated {
		return true
	}
	if c.gone || l.authenticated == mostAuthenticated {
		return false
	}
	c.leave()
	c.authenticated, c.gone = true, false
	l.authenticated++
	return true
}

// leave stops counting the connection. The caller holds the listener's mu.
func (c *limitedConn) leave() {
	l := c.listener
	c.late.Stop()
	switch {
	case c.gone:
	case c.authenticated:
		l.authenticated--
	default:
		l.strangers = slices.DeleteFunc(l.strangers, func(other *limitedConn) bool { return other == c })
	}
	c.gone = true
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.leave()
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// networkOf returns the network of one machine: its address in IPv4. In IPv6 a machine has 2^64 addresses.
func networkOf(address net.Addr) netip.Prefix {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := parsed.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits)
	return network
}
