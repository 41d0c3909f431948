package detect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// ownThread is a net.Listener whose sockets are open in one thread only.
//
// A process that is killed frees its memory before the kernel closes its descriptors: some 70 ms for 1 GiB, in which its
// peers notice nothing. But it is the last of its threads that frees the memory, and each thread that goes before it drops
// its table of descriptors at once. Threads share one table, unless one asks for its own: what is open only there is closed
// right after the kill, however large the process is, but for the rare case that this thread happens to be the last.
//
// The descriptors mean nothing in other threads, so the runtime's poller cannot wait for them: the thread does, for all of
// its sockets, and passes what they carry through pipes. That is slow, and enough for beats.
type ownThread struct {
	address  net.Addr
	wake     int // an eventfd that all threads have, which ends the thread's waiting
	accepted chan net.Conn
	closed   chan struct{}
	running  sync.WaitGroup // the thread, and what passes its data on

	mu    sync.Mutex
	tasks []func() // for the thread
	over  bool

	// Owned by the thread.
	listener int
	conns    map[int]*threadConn
	ending   bool
}

// threadConn is a connection of the thread. It is owned by it.
type threadConn struct {
	fd      int
	inside  net.Conn // the end of the pipe that is not the server's
	hungry  bool     // what was read before has been passed on
	input   chan []byte
	output  []byte
	written chan struct{} // closed when output is written, or never will be; nil if there is none
}

const (
	readSize = 4 << 10 // bytes
	// userTimeout is how long a peer may leave what was sent to it unacknowledged.
	userTimeoutMilliseconds = 30_000
)

// inOwnThread moves the socket of listener to a thread of its own; if that is not possible, listener is returned.
func inOwnThread(ctx context.Context, listener net.Listener) net.Listener {
	moved, err := newOwnThread(listener)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The probe is closed after this process's memory is freed, should it be killed: standbys notice that later", "err", err)
		return listener
	}
	_ = listener.Close() // the thread has its own descriptor
	return moved
}

func newOwnThread(listener net.Listener) (*ownThread, error) {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", listener)
	}
	file, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("the listener's descriptor: %w", err)
	}
	defer file.Close() //nolint:errcheck // a duplicate
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("an eventfd: %w", err)
	}
	t := &ownThread{
		address: listener.Addr(), wake: wake, listener: int(file.Fd()),
		accepted: make(chan net.Conn), closed: make(chan struct{}), conns: map[int]*threadConn{},
	}
	keep, err := pollerDescriptors()
	if err != nil {
		_ = unix.Close(wake)
		return nil, err
	}
	begun := make(chan error)
	t.running.Go(func() { offMainThread(func() { t.run(append(keep, wake, t.listener), begun) }) })
	if err := <-begun; err != nil {
		t.running.Wait()
		_ = unix.Close(wake)
		return nil, err
	}
	return t, nil
}

// pollerDescriptors are those that the runtime uses from any thread: its epoll and the eventfd that interrupts it. They
// are as old as the process's first socket, and never closed.
func pollerDescriptors() ([]int, error) {
	const directory = "/proc/self/fd"
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("this process's descriptors: %w", err)
	}
	var fds []int
	kinds := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(directory, e.Name()))
		fd, notNumber := strconv.Atoi(e.Name())
		if err != nil || notNumber != nil {
			continue // closed meanwhile
		}
		for _, kind := range []string{"[eventpoll]", "[eventfd]"} {
			if strings.HasSuffix(target, kind) {
				kinds[kind]++
				fds = append(fds, fd)
			}
		}
	}
	if kinds["[eventpoll]"] == 0 || kinds["[eventfd]"] < 2 { // one of them is ours
		return nil, errors.New("the runtime's poller is not as expected")
	}
	return fds, nil
}

// leaveTable gives this thread a table of descriptors of its own, in which there are only those up to 2 and the given.
func leaveTable(keep []int) error {
	keep = slices.Clone(keep)
	slices.Sort(keep)
	keep = slices.Compact(keep)
	// From above, so that the first call leaves as little as possible to copy. Containers that forbid unshare allow this.
	flags := uint(unix.CLOSE_RANGE_UNSHARE)
	last := uint(1<<31 - 1)
	for i := len(keep); i >= 0; i-- {
		first := uint(3)
		if i > 0 {
			first = uint(keep[i-1]) + 1
		}
		if first <= last {
			if err := unix.CloseRange(first, last, flags); err != nil {
				return fmt.Errorf("descriptors of a thread's own: %w", err)
			}
			flags = 0
		}
		if i > 0 {
			last = uint(keep[i-1]) - 1
		}
	}
	return nil
}

// offMainThread calls run locked to a thread, which ends with it, that is not the process's first: whose table everybody
// takes for the process's, and which never ends.
func offMainThread(run func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		run()
		return
	}
	elsewhere := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		runtime.LockOSThread() // another: the first is taken
		close(elsewhere)
		run()
	})
	<-elsewhere
	runtime.UnlockOSThread()
	running.Wait()
}

// run is the thread.
func (t *ownThread) run(keep []int, begun chan<- error) {
	if err := leaveTable(keep); err != nil {
		begun <- err
		return
	}
	_ = unix.SetNonblock(t.listener, true)
	begun <- nil
	for !t.ending {
		t.wait()
		t.mu.Lock()
		tasks := t.tasks
		t.tasks = nil
		t.mu.Unlock()
		for _, task := range tasks {
			task()
		}
	}
	for _, c := range t.conns {
		t.drop(c)
	}
	_ = unix.Close(t.listener)
}

// wait waits until a socket is ready or there is a task, and does what sockets are ready for.
func (t *ownThread) wait() {
	fds := []unix.PollFd{{Fd: int32(t.wake), Events: unix.POLLIN}, {Fd: int32(t.listener), Events: unix.POLLIN}}
	for fd, c := range t.conns {
		var events int16
		if c.hungry {
			events |= unix.POLLIN
		}
		if len(c.output) > 0 {
			events |= unix.POLLOUT
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: events})
	}
	if _, err := unix.Poll(fds, -1); err != nil {
		return // interrupted
	}
	for _, ready := range fds {
		if ready.Revents == 0 {
			continue
		}
		switch fd := int(ready.Fd); fd {
		case t.wake:
			var count [8]byte
			_, _ = unix.Read(fd, count[:])
		case t.listener:
			t.accept()
		default:
			t.serve(t.conns[fd], ready.Revents)
		}
	}
}

// accept takes one connection.
func (t *ownThread) accept() {
	fd, _, err := unix.Accept4(t.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return // gone again, or no descriptor is free
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeoutMilliseconds)
	served, inside := net.Pipe()
	c := &threadConn{fd: fd, inside: inside, hungry: true, input: make(chan []byte, 1)}
	t.conns[fd] = c
	t.running.Go(func() { t.passIn(c) })
	t.running.Go(func() {
		select {
		case t.accepted <- &pipedConn{Conn: served, local: t.address}:
			t.passOut(c)
		case <-t.closed:
			_ = served.Close()
		}
	})
}

// serve reads and writes what can be.
func (t *ownThread) serve(c *threadConn, ready int16) {
	if len(c.output) > 0 && ready&(unix.POLLOUT|unix.POLLERR|unix.POLLHUP) != 0 {
		n, err := unix.Write(c.fd, c.output)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			t.drop(c)
			return
		}
		if c.output = c.output[max(n, 0):]; len(c.output) == 0 {
			close(c.written)
			c.written = nil
		}
	}
	if !c.hungry {
		if ready&(unix.POLLERR|unix.POLLHUP) != 0 {
			t.drop(c)
		}
		return
	}
	buffer := make([]byte, readSize)
	n, err := unix.Read(c.fd, buffer)
	switch {
	case n > 0:
		c.hungry = false
		c.input <- buffer[:n] // there is room: it was hungry
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	default:
		t.drop(c)
	}
}

// drop closes a connection.
func (t *ownThread) drop(c *threadConn) {
	if t.conns[c.fd] != c {
		return
	}
	delete(t.conns, c.fd)
	_ = unix.Close(c.fd)
	close(c.input)
	if c.written != nil {
		close(c.written)
		c.written = nil
	}
	_ = c.inside.Close()
}

// passIn passes on what the thread has read.
func (t *ownThread) passIn(c *threadConn) {
	for data := range c.input {
		if _, err := c.inside.Write(data); err != nil {
			t.do(func() { t.drop(c) })
			continue // until the thread has closed it
		}
		t.do(func() { c.hungry = true })
	}
}

// passOut has the thread write what the server writes.
func (t *ownThread) passOut(c *threadConn) {
	buffer := make([]byte, readSize)
	for {
		n, err := c.inside.Read(buffer)
		if err != nil {
			t.do(func() { t.drop(c) })
			return
		}
		written := make(chan struct{})
		if !t.do(func() {
			if t.conns[c.fd] != c {
				close(written)
				return
			}
			c.output, c.written = buffer[:n], written
		}) {
			return
		}
		<-written
	}
}

// do has the thread do something. It reports false if the thread has ended, or will without that.
func (t *ownThread) do(task func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.tasks = append(t.tasks, task)
	t.interrupt()
	return true
}

// interrupt ends the thread's waiting.
func (t *ownThread) interrupt() {
	_, _ = unix.Write(t.wake, binary.NativeEndian.AppendUint64(nil, 1))
}

// Accept implements net.Listener.
func (t *ownThread) Accept() (net.Conn, error) {
	select {
	case c := <-t.accepted:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Unlike others it closes the connections too, and returns when all has ended.
func (t *ownThread) Close() error {
	t.mu.Lock()
	again := t.over
	if !again {
		t.tasks = append(t.tasks, func() { t.ending = true })
		t.over = true
		close(t.closed)
		t.interrupt()
	}
	t.mu.Unlock()
	t.running.Wait()
	if !again {
		_ = unix.Close(t.wake)
	}
	return nil
}

// Addr implements net.Listener.
func (t *ownThread) Addr() net.Addr { return t.address }

// pipedConn is the server's end.
type pipedConn struct {
	net.Conn
	local net.Addr
}

// LocalAddr is the listener's.
func (c *pipedConn) LocalAddr() net.Addr { return c.local }

var (
	_ net.Listener = (*ownThread)(nil)
	_ net.Conn     = (*pipedConn)(nil)
)
