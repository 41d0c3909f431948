package detect

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regent-project/regent/pkg/election"
)

// nameserver answers all questions for addresses with these, in this order.
func nameserver(t *testing.T, addresses ...[4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := answerTo(buffer[:n], addresses); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answerTo returns the answer to a question of DNS (RFC 1035): these addresses, if it is for the type A, and else none.
func answerTo(question []byte, addresses [][4]byte) []byte {
	const header, flags, counts = 12, 2, 4
	end := header
	for end < len(question) && question[end] != 0 { // the labels of the name
		end += 1 + int(question[end])
	}
	if end += 5; end > len(question) { // its end, the type, the class
		return nil
	}
	answer := slices.Clone(question[:end])
	answer[flags], answer[flags+1] = 0x81, 0x80 // a response, and no error
	clear(answer[counts+2 : header])            // one question, and no other records yet
	if typ := question[end-3]; typ != 1 {
		return answer
	}
	answer[counts+3] = byte(len(addresses))
	for _, ip := range addresses {
		// the name above, A, IN, for a minute, four bytes
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		answer = append(answer, ip[:]...)
	}
	return answer
}

// hole is an address that takes no connection, and refuses none: packets to it are lost.
func hole(t *testing.T, address *net.TCPAddr) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	at := &unix.SockaddrInet4{Port: address.Port}
	copy(at.Addr[:], address.IP.To4())
	if err := unix.Bind(fd, at); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 { // fill what it would accept
		if c, err := net.DialTimeout("tcp", address.String(), 50*time.Millisecond); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	if c, err := net.DialTimeout("tcp", address.String(), 100*time.Millisecond); err == nil {
		_ = c.Close()
		t.Fatal("this kernel accepts more: no hole")
	} else {
		t.Logf("the hole: %v", err)
	}
}

// "A crash is a refused connection to an address where this very process answered before." A name has two addresses, as
// in a dual stack, or because a record is old. The leader answers at one of them. Then packets to that one are lost:
// the leader is cut off, and lives. The other address refuses, as it always did.
func TestARefusalOfAnAddressThatNeverAnsweredIsNoDeath(t *testing.T) {
	leader := openPlain(t)
	relay, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	cut := false
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	pass := func(to, from net.Conn) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			mu.Lock()
			lost := cut
			mu.Unlock()
			if err != nil {
				if !lost {
					_ = to.Close()
				}
				return
			}
			if !lost {
				_, _ = to.Write(buffer[:n])
			}
		}
	}
	go func() {
		for {
			c, err := relay.Accept()
			if err != nil {
				return
			}
			// it does not look at the process's
			b, err := (&net.Dialer{Resolver: &net.Resolver{}}).Dial("tcp", leader.listener.Addr().String())
			if err != nil {
				_ = c.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, b, c)
			mu.Unlock()
			go pass(c, b)
			go pass(b, c)
		}
	}()
	at := relay.Addr().(*net.TCPAddr)
	was := net.DefaultResolver
	// it is the process's: this test is not parallel
	net.DefaultResolver = nameserver(t, [4]byte{127, 0, 0, 2}, [4]byte{127, 0, 0, 3})
	t.Cleanup(func() { net.DefaultResolver = was })

	_, port, _ := net.SplitHostPort(at.String())
	f := follow(t, election.Contact{Address: net.JoinHostPort("leader.review.example", port), Key: leader.fingerprint})
	f.next(t, sign(election.Alive), election.Dead)

	mu.Lock()
	cut = true // from here on all packets are lost; nothing is closed
	mu.Unlock()
	_ = relay.Close()
	hole(t, at)
	silent := f.next(t, sign(election.Silent), election.Dead)
	t.Logf("silent since %v", silent.Since)
	deadline := time.After(3 * time.Second)
	for {
		select {
		case n := <-f.news:
			if n.Sign == election.Dead {
				t.Errorf("the leader, which lives, counts as dead: %+v", n)
				return
			}
		case <-deadline:
			return
		}
	}
}
