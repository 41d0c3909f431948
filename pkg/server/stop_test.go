package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// golang/go#81153: a connection of HTTP/2 that is made while a server shuts down is not told so, and was waited for.
func TestAConnectionThatIsMadeWhileTheReplicaStopsHoldsUpNobody(t *testing.T) {
	t.Parallel() // most of it is waiting
	cfg := config(t, t.TempDir())
	cfg.ShutdownTimeout = 10 * time.Minute
	r := startReplica(t, cfg)
	address := r.server.generic.SecureServing.Listener.Addr().String()
	begin := func() *tls.Conn {
		raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{RootCAs: r.client.Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "localhost", NextProtos: []string{"h2"}})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// speak says what clients of HTTP/2 say at once: the preface, and SETTINGS that are empty.
	speak := func(conn *tls.Conn) error {
		_, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		return err
	}
	late, timely := begin(), begin()
	if err := speak(timely); err != nil { // so late is accepted, too
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.stop(t) }()
	untilClosed(t, timely) // whoever was to be told has been
	_ = speak(late)        // unless it is closed already
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the replica waits for a connection over which nobody asks")
	}
	untilClosed(t, late)
}

func untilClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Fatal("the connection stays open")
		}
	}
}
