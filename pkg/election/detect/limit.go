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
	// mostStrangers is how many connections there may be that have not shown the credential. One more takes the place of the
	// oldest of the address that has most: a standby needs one for some milliseconds, and who only holds places keeps none.
	mostStrangers = 64
	// mostAuthenticated is how many there may be beside those that have.
	mostAuthenticated = 256
	// shortestAcceptPause is waited after a connection could not be accepted; it doubles with each failure in a row.
	shortestAcceptPause = 5 * time.Millisecond
	longestAcceptPause  = time.Second
	// complainAgain is how long after one complaint about that the next may follow.
	complainAgain = time.Minute
)

// limitedListener bounds what the connections to a probe cost its process, whoever makes them. A connection is a stranger's until
// it has shown the credential, for which it has some seconds.
type limitedListener struct {
	net.Listener
	name     string        // the Lease's, for metrics
	patience time.Duration // how long a connection may be a stranger's
	logger   klog.Logger
	closing  func()        // closes closed, once
	closed   chan struct{} // no more pauses

	complained time.Time // owned by Accept, which one goroutine calls

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

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	address  netip.Prefix
	late     *time.Timer // closes it, unless it has shown the credential

	// Guarded by the listener's mu.
	authenticated, gone bool
}

// Accept implements net.Listener. It fails only when the listener is closed: what is wrong otherwise, a lack of descriptors or of
// memory, is over some time.
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
			l.logger.Error(err, "The probe cannot accept a standby's connection and tries again. Until it can, standbys without contact miss this process's crash. "+
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

// enter gives a connection a stranger's place.
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

// makeRoom closes a stranger's connection, if there is one: the oldest of the address that has most.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	first := firstOfMost(l.strangers)
	l.mu.Unlock()
	l.expel(first, "crowded")
}

// firstOfMost is the first of the connections of the address that has most of them; nil if there are none.
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

// expel closes a connection, unless it has shown the credential.
func (l *limitedListener) expel(c *limitedConn, reason string) {
	l.mu.Lock()
	stranger := slices.Contains(l.strangers, c)
	if stranger {
		c.leave()
	}
	l.mu.Unlock()
	if stranger {
		expelled.WithLabelValues(l.name, reason).Inc()
		_ = c.Conn.Close()
	}
}

// authenticate takes in that the credential was shown. It reports false if there is no place.
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

// leave frees the place of a connection. The listener's mu is held.
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

// networkOf is whose address that is: in IPv6 a machine has 2^64 of them.
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
