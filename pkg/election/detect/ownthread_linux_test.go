package detect

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tables returns the sockets that each thread of this process has open, by thread and then by inode. The main thread's
// table is that of the process.
func tables(t *testing.T) map[string]map[string]bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]bool{}
	for _, thread := range threads {
		entries, err := os.ReadDir(filepath.Join(thread, "fd"))
		if err != nil {
			continue // it has ended
		}
		sockets := map[string]bool{}
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(thread, "fd", e.Name())); err == nil && strings.HasPrefix(target, "socket:") {
				sockets[target] = true
			}
		}
		all[filepath.Base(thread)] = sockets
	}
	return all
}

// The kernel closes the sockets right after a kill, because no thread that ends later has them in its table.
func TestTheProbesSocketsAreInATableOfTheirOwn(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0") // of the process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	leader := open(t, "leader", "127.0.0.1:0", patient)
	if _, ok := leader.listener.(*limitedListener).Listener.(*ownThread); !ok {
		t.Fatalf("the probe is a %T", leader.listener)
	}
	follow(t, leader.Contact(), unhurried) // an attempt that is given up would leave sockets for a while
	haveBoth(t, leader)

	all := tables(t)
	process := all[fmt.Sprint(os.Getpid())]
	own := 0
	for thread, sockets := range all {
		if maps.Equal(sockets, process) {
			continue
		}
		own++
		if len(sockets) != 2 { // the listener, and one standby
			t.Errorf("thread %s has %d sockets", thread, len(sockets))
		}
		for s := range sockets {
			if process[s] {
				t.Errorf("%s is in the process's table too", s)
			}
		}
	}
	if own != 2 {
		t.Errorf("%d threads have a table of their own, want 2: the probe's, and its witness's", own)
	}
	if len(process) < 2 { // other, and the standby's end
		t.Errorf("the process has %d sockets", len(process))
	}
}

// echoThread is a server on an ownThread that echoes what it gets, until the test ends.
func echoThread(t *testing.T) net.Listener {
	t.Helper()
	listener, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		_ = listener.Close() // twice does no harm
		serving.Wait()
	})
	return listener
}

func TestWhatPassesTheThreadArrivesWholeAndInOrder(t *testing.T) {
	listener := echoThread(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			sent := make([]byte, 300<<10) // more than any buffer on the way
			_, _ = rand.Read(sent)
			var writing sync.WaitGroup
			writing.Go(func() {
				if _, err := conn.Write(sent); err != nil {
					t.Error(err)
				}
			})
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil {
				t.Error(err)
			}
			writing.Wait()
			if !bytes.Equal(got, sent) {
				t.Error("something else came back")
			}
		})
	}
	all.Wait()
}

// Peers that come and go, that read nothing, or that stay when the listener closes leave no descriptor and no goroutine
// behind.
func TestTheThreadClosesWhatItsPeersLeave(t *testing.T) {
	listener := echoThread(t)
	thread, ok := listener.(*ownThread)
	if !ok {
		t.Fatalf("a %T", listener)
	}
	var conns []net.Conn
	for i := range 30 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		switch i % 3 {
		case 0: // gone at once
			_ = conn.Close()
		case 1: // reads nothing
			_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = conn.Write(make([]byte, 64<<20))
		}
	}
	open := func() (n int) {
		done := make(chan struct{})
		if !thread.do(func() { n = len(thread.conns); close(done) }) {
			t.Fatal("the thread has ended")
		}
		<-done
		return n
	}
	for began := time.Now(); open() != 20; time.Sleep(time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("%d connections are open, want 20", open())
		}
	}
	_ = listener.Close()
	for i, conn := range conns {
		if i%3 != 0 {
			_ = conn.SetReadDeadline(time.Now().Add(within))
			if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
				t.Errorf("connection %d is open", i)
			}
			_ = conn.Close()
		}
	}
	if thread.do(func() {}) {
		t.Error("it takes tasks after its end")
	}
}

// A chroot may have no /proc. The probe then stays with the runtime, and closes like any other listener: a replica that
// cannot close it does not stop.
func TestAProbeThatGetsNoThreadStillCloses(t *testing.T) {
	for name, table := range map[string]string{"no /proc": filepath.Join(t.TempDir(), "none"), "another kernel's poller": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listener := inOwnThread(t.Context(), plain, table)
			if listener != plain {
				t.Fatalf("the listener became a %T", listener)
			}
			closed := make(chan error, 1)
			go func() {
				var accepting sync.WaitGroup
				// the first connection shows that it serves; then it waits until it is closed
				accepting.Go(func() {
					for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
						_ = conn.Close()
					}
				})
				conn, err := net.Dial("tcp", plain.Addr().String())
				if err == nil {
					_, _ = io.Copy(io.Discard, conn)
					err = errors.Join(conn.Close(), listener.Close())
				}
				accepting.Wait()
				closed <- err
			}()
			select {
			case err := <-closed:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(within):
				t.Error("it still waits for connections")
			}
		})
	}
}
