package connections

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
)

// dialled connects from a loopback address and reports whether the connection is let in.
func dialled(t *testing.T, at net.Listener, from string) (conn net.Conn, in bool) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", at.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, isIn(t, conn)
}

// isIn reports whether the server, which greets whom it lets in, has greeted.
func isIn(t *testing.T, conn net.Conn) bool {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := conn.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		var opErr *net.OpError
		if !errors.As(err, &opErr) || opErr.Timeout() {
			t.Fatal(err)
		}
	}
	return err == nil
}

// greeting accepts connections, greets them, and closes them when their clients do.
func greeting(t *testing.T, limits Limits) net.Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Limit(t.Context(), inner, limits)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := c.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("!"))
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})
	return c
}

func TestConnectionsAreCappedInAllAndPerClient(t *testing.T) {
	c := greeting(t, Limits{Total: 3, PerClient: 2})
	refused := func(limit string) float64 {
		n, err := testutil.GetCounterMetricValue(refusedConnections.WithLabelValues(limit))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	byClient, byTotal := refused("client"), refused("total")
	var first net.Conn
	for i, step := range []struct {
		from string
		in   bool
	}{{"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", false}, {"127.0.0.2", true}, {"127.0.0.3", false}} {
		conn, in := dialled(t, c, step.from)
		if in != step.in {
			t.Fatalf("connection %d, from %s: let in %t, want %t", i, step.from, in, step.in)
		}
		if first == nil {
			first = conn
		}
	}
	if refused("client") != byClient+1 || refused("total") != byTotal+1 {
		t.Errorf("refused by client %v, in all %v; want one more each than %v, %v", refused("client"), refused("total"), byClient, byTotal)
	}
	_ = first.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, in := dialled(t, c, "127.0.0.3"); in {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a connection that was closed keeps its place")
		}
	}
}

func TestAClientOfIPv6IsItsNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"[2001:db8::1]:1": "2001:db8::/64", "[2001:db8::ffff:2]:2": "2001:db8::/64", "[2001:db8:0:1::1]:1": "2001:db8:0:1::/64",
		"10.1.2.3:1": "10.1.2.3/32", "[::ffff:10.1.2.3]:1": "10.1.2.3/32", "[fe80::1%1]:1": "fe80::/64",
	} {
		remote, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := clientOf(remoteAt{remote: remote}); got.String() != want {
			t.Errorf("%s is client %s, want %s", address, got, want)
		}
	}
}

type remoteAt struct {
	net.Conn
	remote net.Addr
}

func (r remoteAt) RemoteAddr() net.Addr { return r.remote }

func TestMain(m *testing.M) {
	// started by klog's init, for the life of the process
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func TestOnlyALimitThatSomebodyHasSetIsToldAsTooHigh(t *testing.T) {
	for total, want := range map[int]bool{0: false, 1: false, 1 << 30: descriptors() > 0} {
		logged := false
		log := funcr.New(func(_, _ string) { logged = true }, funcr.Options{})
		Limit(klog.NewContext(t.Context(), log), nil, Limits{Total: total})
		if logged != want {
			t.Errorf("limit %d: told is %v", total, logged)
		}
	}
}
