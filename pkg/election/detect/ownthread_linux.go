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
// A process that is killed frees its memory before the kernel closes its descriptors. For 1 GiB that takes some 70 ms,
// in which its peers notice nothing. The last of the process's threads frees the memory, but each thread that ends
// earlier drops its table of descriptors at once. Threads share one table, unless a thread asks for its own. So a
// socket that is open only in such a thread's table is closed right after the kill, however large the process is,
// unless this thread happens to be the last one.
//
// The descriptors mean nothing in other threads. So the runtime's poller cannot wait for them, and other threads cannot
// read or write them: the thread does so for all its sockets. This is slow, but fast enough for beats. /proc/<pid>/fd
// does not show them either: look into /proc/<pid>/task/*/fd.
type ownThread struct {
	address  net.Addr
	wake     int // an eventfd that all threads have; a write to it interrupts the thread's waiting
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

// accepted is the result of an attempt to accept.
type accepted struct {
	conn *threadConn
	err  error
}

// ownTable is the directory with the process's descriptors. A chroot may lack it.
const ownTable = "/proc/self/fd"

// inOwnThread moves the socket of listener to a thread of its own. If that is not possible, it returns listener, which
// works as before. table is ownTable, except in tests.
func inOwnThread(ctx context.Context, listener net.Listener, table string) net.Listener {
	moved, err := newOwnThread(listener, table)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("If this process is killed, its probe closes only after its memory was freed: standbys notice that later", "err", err)
		return listener
	}
	_ = listener.Close() // the thread has its own descriptor
	return moved
}

func newOwnThread(listener net.Listener, table string) (*ownThread, error) {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("a listener of type %T has no descriptor", listener)
	}
	listening, err := duplicate(tcp)
	if err != nil {
		return nil, err
	}
	defer unix.Close(listening) //nolint:errcheck // the thread keeps its own
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("an eventfd: %w", err)
	}
	t := &ownThread{
		address: listener.Addr(), wake: wake, listener: listening,
		accepted: make(chan accepted, 1), closed: make(chan struct{}), conns: map[int]*threadConn{},
	}
	keep, err := pollerDescriptors(table)
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

// duplicate returns a second descriptor of a listener's socket. It is not taken from TCPListener.File: that one's Fd
// makes the socket block, for both descriptors. Where the listener stays with the runtime after all, its Close would
// then wait for the next connection.
func duplicate(listener *net.TCPListener) (fd int, err error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("the listener's descriptor: %w", err)
	}
	var refused error
	err = raw.Control(func(of uintptr) { fd, refused = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, refused); err != nil {
		return 0, fmt.Errorf("a second descriptor of the listener: %w", err)
	}
	return fd, nil
}

// pollerDescriptors returns the descriptors that the runtime uses from any thread: its epoll, and the eventfd that
// interrupts it. They exist since the process's first socket, and are never closed. table is the directory with the
// process's descriptors.
func pollerDescriptors(table string) ([]int, error) {
	entries, err := os.ReadDir(table)
	if err != nil {
		return nil, fmt.Errorf("this process's descriptors: %w", err)
	}
	var fds []int
	kinds := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(table, e.Name()))
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
	if kinds["[eventpoll]"] == 0 || kinds["[eventfd]"] < 2 { // one of the eventfds is ours
		return nil, errors.New("the runtime's poller is not as expected")
	}
	return fds, nil
}

// leaveTable gives the calling thread its own table of descriptors, which has only 0 to 2 and those in keep.
func leaveTable(keep []int) error {
	keep = slices.Clone(keep)
	slices.Sort(keep)
	keep = slices.Compact(keep)
	// Begin with the highest, so that the first call copies as few as possible. Containers that forbid unshare
	// allow close_range.
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

// offMainThread calls run locked to a thread, which ends after run. It never uses the process's first thread: that one
// does not end, and its table is taken for the process's.
func offMainThread(run func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		run()
		return
	}
	elsewhere := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		runtime.LockOSThread() // this goroutine gets another thread, because the first is locked
		close(elsewhere)
		run()
	})
	<-elsewhere
	runtime.UnlockOSThread()
	running.Wait()
}

// run is what the thread does.
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

// poll makes the thread's epoll. It waits for tasks, and for connections while Accept waits.
func (t *ownThread) poll() (err error) {
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

// wait waits until a socket is ready or there is a task, and handles the ready sockets.
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
			if c := t.conns[fd]; c != nil { // nil: an event before this one dropped it
				c.becomeReady(ready.Events)
			}
		}
	}
}

// awaitConnection makes the thread accept the next connection.
func (t *ownThread) awaitConnection() {
	if err := t.register(unix.EPOLL_CTL_MOD, t.listener, unix.EPOLLIN|unix.EPOLLONESHOT); err != nil {
		t.accepted <- accepted{err: err}
	}
}

// accept tries to accept the connection that Accept waits for.
func (t *ownThread) accept() {
	fd, peer, err := unix.Accept4(t.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		t.awaitConnection() // the connection has gone
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
	t.accepted <- accepted{conn: c} // does not block: Accept waits for one result
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

// do gives the thread a task. It returns false if the thread has ended, or will end without doing the task.
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

// interrupt wakes the thread up.
func (t *ownThread) interrupt() {
	_, _ = unix.Write(t.wake, binary.NativeEndian.AppendUint64(nil, 1))
}

// Accept implements net.Listener. The thread accepts a connection only while Accept waits for one, so the caller's
// pauses between calls limit what failed attempts cost.
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

// Close implements net.Listener. Unlike other listeners it also closes all connections, and it returns when the thread
// has ended.
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

// inThread reports whether a listener's sockets are in a thread of their own.
func inThread(listener net.Listener) bool {
	_, ok := listener.(*ownThread)
	return ok
}
