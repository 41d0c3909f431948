package detect

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// threadConn is a connection of an ownThread. Its socket belongs to the thread, which reads one buffer ahead and writes
// what Write gives it.
type threadConn struct {
	thread  *ownThread
	fd      int
	remote  net.Addr
	gone    chan struct{} // closed by the thread when it has closed the socket
	arrived chan struct{} // capacity 1: there is input
	written chan struct{} // capacity 1: all output was written

	readDeadline, writeDeadline deadline

	writing sync.Mutex // held by Write

	mu     sync.Mutex
	input  []byte // read, but not taken by Read yet
	output []byte // not written yet

	// Owned by the thread: the socket may have something to read, or may accept output.
	readable, writable bool
}

// readSize is how much is read ahead, in bytes.
const readSize = 4 << 10

func newThreadConn(t *ownThread, fd int, remote net.Addr) *threadConn {
	return &threadConn{
		thread: t, fd: fd, remote: remote, gone: make(chan struct{}), arrived: make(chan struct{}, 1), written: make(chan struct{}, 1),
		readDeadline: newDeadline(), writeDeadline: newDeadline(),
	}
}

// becomeReady: the socket's state has changed. The thread calls it.
func (c *threadConn) becomeReady(events uint32) {
	c.readable = c.readable || events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0
	c.writable = c.writable || events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
	broken := events&(unix.EPOLLHUP|unix.EPOLLERR) != 0
	if !c.progress() || broken {
		c.thread.drop(c)
	}
}

// proceed is the thread's task when there is output, or room for input.
func (c *threadConn) proceed() {
	if c.thread.conns[c.fd] == c && !c.progress() {
		c.thread.drop(c)
	}
}

// progress reads and writes as much as is possible now. It runs in the thread. It returns false if the connection is
// over.
func (c *threadConn) progress() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write() && c.read()
}

func (c *threadConn) write() bool {
	for c.writable && len(c.output) > 0 {
		n, err := unix.Write(c.fd, c.output)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.writable = false
		case err != nil:
			return false
		default:
			if c.output = c.output[n:]; len(c.output) == 0 {
				c.written <- struct{}{} // does not block: one Write waits
			}
		}
	}
	return true
}

func (c *threadConn) read() bool {
	for c.readable && len(c.input) == 0 {
		buffer := make([]byte, readSize)
		n, err := unix.Read(c.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.readable = false
		case n <= 0:
			return false
		default:
			c.input = buffer[:n]
			select {
			case c.arrived <- struct{}{}:
			default:
			}
		}
	}
	return true
}

// Read implements net.Conn.
func (c *threadConn) Read(p []byte) (int, error) {
	for {
		if passed(c.readDeadline.wait()) {
			return 0, os.ErrDeadlineExceeded
		}
		if n := c.take(p); n > 0 || len(p) == 0 {
			return n, nil
		}
		select {
		case <-c.arrived:
		case <-c.readDeadline.wait():
		case <-c.gone:
			if n := c.take(p); n > 0 {
				return n, nil
			}
			return 0, io.EOF
		}
	}
}

// take moves input to p.
func (c *threadConn) take(p []byte) int {
	c.mu.Lock()
	n := copy(p, c.input)
	c.input = c.input[n:]
	empty := len(c.input) == 0
	c.mu.Unlock()
	if n > 0 && empty {
		c.thread.do(c.proceed)
	}
	return n
}

// Write implements net.Conn. It returns when the kernel has taken all of p.
func (c *threadConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	switch {
	case len(p) == 0:
		return 0, nil
	case passed(c.gone):
		return 0, net.ErrClosed
	case passed(c.writeDeadline.wait()):
		return 0, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	c.output = slices.Clone(p) // the caller may reuse p after a deadline
	c.mu.Unlock()
	err := net.ErrClosed
	if c.thread.do(c.proceed) {
		select {
		case <-c.written:
			return len(p), nil
		case <-c.gone:
		case <-c.writeDeadline.wait():
			err = os.ErrDeadlineExceeded
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	left := len(c.output)
	c.output = nil
	if left == 0 { // written at the last moment
		<-c.written
		return len(p), nil
	}
	return len(p) - left, err
}

// Close implements net.Conn. The kernel still sends what was written.
func (c *threadConn) Close() error {
	c.thread.do(func() { c.thread.drop(c) })
	return nil
}

// LocalAddr implements net.Conn.
func (c *threadConn) LocalAddr() net.Addr { return c.thread.address }

// RemoteAddr implements net.Conn.
func (c *threadConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *threadConn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *threadConn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *threadConn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}

// deadline is a time that may be changed while somebody waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer   // nil if the deadline has passed, or if there is none
	past  chan struct{} // closed when it passes
}

func newDeadline() deadline { return deadline{past: make(chan struct{})} }

// wait returns a channel that is closed when the deadline passes.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

// set changes the deadline; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if passed(d.past) {
		d.past = make(chan struct{})
	}
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(d.past)
	default:
		var timer *time.Timer
		timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer { // not changed meanwhile
				d.timer = nil
				close(d.past)
			}
		})
		d.timer = timer
	}
}

// passed reports whether a channel is closed.
func passed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var _ net.Conn = (*threadConn)(nil)
