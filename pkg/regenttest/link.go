package regenttest

import (
	"net"
	"sync"
)

// link forwards connections to an address of loopback, and can be cut: then they stay open, nothing passes in either
// direction, and nobody is told. All methods may be called at any time.
type link struct {
	mu      sync.Mutex
	changed *sync.Cond // of all below
	target  string     // empty: not known yet, and connections wait
	cut     map[*Process]bool
	closed  bool
	open    map[net.Conn]bool // both ends of each connection; true: a balancer has led it here
}

func newLink(target string) *link {
	l := &link{target: target, cut: map[*Process]bool{}, open: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *link) setTarget(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = address
	l.changed.Broadcast()
}

// setCut cuts the link for one of those at its ends, or heals what it has cut. The link stays cut as long as the other
// one's is.
func (l *link) setCut(by *Process, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut {
		l.cut[by] = true
	} else {
		delete(l.cut, by)
	}
	l.changed.Broadcast()
}

// closeBalanced closes the connections that a balancer has led here: they can go another way.
func (l *link) closeBalanced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, balanced := range l.open {
		if balanced {
			_ = c.Close()
			delete(l.open, c)
		}
	}
	l.changed.Broadcast()
}

// close closes all connections, and those that come.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
	l.changed.Broadcast()
}

// enter keeps a connection among the open ones, if there may be any.
func (l *link) enter(c net.Conn, balanced bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return false
	}
	l.open[c] = balanced
	return true
}

func (l *link) leave(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	l.changed.Broadcast()
}

// pass waits until what a connection has brought may pass, to where it returns. It returns false if it never may: the
// connection is closed.
func (l *link) pass(of net.Conn) (target string, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isOpen := func() bool { _, open := l.open[of]; return open }
	for (l.target == "" || len(l.cut) > 0) && isOpen() {
		l.changed.Wait()
	}
	return l.target, isOpen()
}

// carry forwards a connection until either side closes it, or the link does.
func (l *link) carry(client net.Conn, balanced bool) {
	if !l.enter(client, balanced) {
		return
	}
	defer l.leave(client)
	target, may := l.pass(client)
	if !may {
		return
	}
	server, err := net.Dial("tcp", target) //nolint:noctx // loopback answers at once, or refuses
	if err != nil || !l.enter(server, balanced) {
		return
	}
	defer l.leave(server)
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client) })
	both.Go(func() { l.copy(client, server) })
	both.Wait()
}

// copy ends both connections with either direction: HTTP and TLS do not half-close.
func (l *link) copy(to, from net.Conn) {
	defer l.leave(to)
	defer l.leave(from)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, may := l.pass(from); !may {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// door is a port of loopback behind which links are.
type door struct {
	listener net.Listener
	serving  sync.WaitGroup
}

// openDoor opens a door on a port that the system chooses. lead says for each connection which link carries it, and
// whether another one could as well; nil: none, and the connection is closed.
func openDoor(lead func() (l *link, balanced bool)) (*door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	d := &door{listener: listener}
	d.serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			d.serving.Go(func() {
				if l, balanced := lead(); l != nil {
					l.carry(c, balanced)
				} else {
					_ = c.Close()
				}
			})
		}
	})
	return d, nil
}

func (d *door) address() string { return d.listener.Addr().String() }

// close returns when nothing is forwarded any more. The links must be closed before.
func (d *door) close() {
	_ = d.listener.Close()
	d.serving.Wait()
}

// always leads to one link.
func always(l *link) func() (*link, bool) { return func() (*link, bool) { return l, false } }
