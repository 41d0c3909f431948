package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
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

func TestARequestThatIsUnderWayWhenAServerStopsIsAnswered(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t)
	e := i.open("f")
	root := i.shards["root"].at
	direct, err := rest.HTTPClientFor(root.adminConfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, url string
		client    *http.Client
		stop      func() error
	}{
		{"front", e.url, e.admin, func() error { e.stop(); return nil }},
		{"replica", root.url, direct, func() error { return root.stop(t) }},
	} {
		unused, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(tc.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		body, write := io.Pipe()
		answered := make(chan error, 1)
		isRead := make(chan struct{})
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(isRead) }})
		go func() {
			answered <- post(ctx, tc.client, tc.url+"/clusters/root/api/v1/namespaces/default/configmaps", body)
		}()
		begun := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}`, tc.what)
		if _, err := io.WriteString(write, begun); err != nil {
			t.Fatal(err)
		}
		<-isRead
		ended := make(chan error, 1)
		go func() { ended <- tc.stop() }()
		untilClosed(t, unused) // what is closed then is not the request's
		_ = unused.Close()
		if _, err := io.WriteString(write, "}"); err != nil {
			t.Error(err)
		}
		_ = write.Close()
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
}

// post creates what body says, and asks to be told when that is read.
func post(ctx context.Context, client *http.Client, url string, body io.ReadCloser) error {
	defer func() { _ = body.Close() }() // or the other end would write for ever
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
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
