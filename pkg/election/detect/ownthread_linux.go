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
// The descriptors mean nothing in other threads, so the runtime's poller cannot wait for them, and no other thread can read
// or write: the thread does, for all of its sockets. That is slow, and enough for beats.
type ownThread struct {
	address  net.Addr
	wake     int // an eventfd that all threads have, which ends the thread's waiting
	accepted chan accepted
	closed   chan struct{}
	running  sync.WaitGroup // the thread

	accepting sync.Mutex // held by Accept

	mu    sync.Mutex
	tasks []func() // for the thread
	over  bool

	// Owned by the thread.
	poller   int // an epoll
	listener int
	conns    map[int]*threadConn
	ending   bool
}

// accepted is the outcome of an attempt to accept.
type accepted struct {
	conn *threadConn
	err  error
}

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
		accepted: make(chan accepted, 1), closed: make(chan struct{}), conns: map[int]*threadConn{},
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
	if err := t.poll(); err != nil {
		begun <- err
		return
	}
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
	_ = unix.Close(t.poller)
}

// poll makes the thread's epoll, which waits for tasks, and for connections when Accept does.
func (t *ownThread) poll() (err error) {
	_ = unix.SetNonblock(t.listener, true)
	if t.poller, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("an epoll: %w", err)
	}
	for fd, events := range map[int]uint32{t.wake: unix.EPOLLIN, t.listener: unix.EPOLLONESHOT} {
		if err := t.register(unix.EPOLL_CTL_ADD, fd, events); err != nil {
			_ = unix.Close(t.poller)
			return err
		}
	}
	return nil
}

// register tells the epoll for which events of a descriptor to wait.
func (t *ownThread) register(operation, fd int, events uint32) error {
	if err := unix.EpollCtl(t.poller, operation, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("wait for a descriptor: %w", err)
	}
	return nil
}

// wait waits until a socket is ready or there is a task, and does what sockets are ready for.
func (t *ownThread) wait() {
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(t.poller, events[:], -1)
	if err != nil {
		return // interrupted
	}
	for _, ready := range events[:n] {
		switch fd := int(ready.Fd); fd {
		case t.wake:
			var count [8]byte
			_, _ = unix.Read(fd, count[:])
		case t.listener:
			t.accept()
		default:
			if c := t.conns[fd]; c != nil { // not dropped by an event before this one
				c.becomeReady(ready.Events)
			}
		}
	}
}

// awaitConnection has the thread accept one connection, once there is one.
func (t *ownThread) awaitConnection() {
	if err := t.register(unix.EPOLL_CTL_MOD, t.listener, unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
		t.accepted <- accepted{err: err}
	}
}

// accept tries to take the connection that Accept waits for.
func (t *ownThread) accept() {
	fd, peer, err := unix.Accept4(t.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		t.awaitConnection() // it has gone again
		return
	case err != nil:
		t.accepted <- accepted{err: fmt.Errorf("accept a connection: %w", err)}
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c := newThreadConn(t, fd, addressOf(peer))
	if err := t.register(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLET); err != nil {
		_ = unix.Close(fd)
		t.accepted <- accepted{err: err}
		return
	}
	t.conns[fd] = c
	t.accepted <- accepted{conn: c} // there is room: Accept waits for one
}

func addressOf(peer unix.Sockaddr) net.Addr {
	switch peer := peer.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: peer.Addr[:], Port: peer.Port}
	case *unix.SockaddrInet6:
		return &net.TCPAddr{IP: peer.Addr[:], Port: peer.Port}
	default:
		return &net.TCPAddr{}
	}
}

// drop closes a connection.
func (t *ownThread) drop(c *threadConn) {
	if t.conns[c.fd] != c {
		return
	}
	delete(t.conns, c.fd)
	_ = unix.Close(c.fd)
	close(c.gone)
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

// Accept implements net.Listener. The thread accepts nothing that nobody waits for: what cannot be accepted costs what the
// caller's pauses allow.
func (t *ownThread) Accept() (net.Conn, error) {
	t.accepting.Lock()
	defer t.accepting.Unlock()
	if !t.do(t.awaitConnection) {
		return nil, net.ErrClosed
	}
	select {
	case a := <-t.accepted:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
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

var _ net.Listener = (*ownThread)(nil)
