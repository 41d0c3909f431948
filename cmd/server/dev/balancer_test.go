package dev

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// outOfDescriptors is a listener whose Accept fails until a time.
type outOfDescriptors struct {
	until  time.Time
	tried  int
	client net.Conn // the first to be accepted
	closed chan struct{}
}

func (l *outOfDescriptors) Accept() (net.Conn, error) {
	l.tried++
	if time.Now().Before(l.until) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	if c := l.client; c != nil {
		l.client = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *outOfDescriptors) Close() error { close(l.closed); return nil }

func (l *outOfDescriptors) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443}
}

func TestTheBalancerOutlivesAWantOfDescriptorsAndDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, accepted := net.Pipe()
		listener := &outOfDescriptors{until: time.Now().Add(time.Minute), client: accepted, closed: make(chan struct{})}
		var said []string
		f := &balancer{listener: listener, slots: make(chan struct{}, 2), say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx, http.DefaultClient) }()
		if _, err := user.Read(make([]byte, 1)); err != io.EOF { // no replica is ready
			t.Errorf("a client that was accepted late: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if listener.tried > 100 {
			t.Errorf("it tried %d times in a minute", listener.tried)
		}
		if len(said) != 1 || !strings.Contains(said[0], "too many open files") {
			t.Errorf("it said %q", said)
		}
	})
}

func TestDescriptorsAreLeftForEtcd(t *testing.T) {
	for _, c := range []struct {
		descriptors uint64
		etcds, want int
	}{{256, 1, 64}, {1024, 1, 384}, {4096, 3, 1664}, {1024, 16, 256}, {1 << 20, 1, mostConnections}, {^uint64(0), 16, mostConnections}, {3, 16, 1}} {
		if got := share(c.descriptors, c.etcds); got != c.want {
			t.Errorf("%d descriptors, %d etcds: %d connections, want %d", c.descriptors, c.etcds, got, c.want)
		}
	}
}

// balancerTo, if set in the environment, makes this binary a balancer before that replica, under fewDescriptors, until
// its input ends.
const (
	balancerTo     = "REGENT_TEST_BALANCER_TO"
	fewDescriptors = 256
)

func asBalancer(backend string) int {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}); err != nil {
		say("%v", err)
		return 1
	}
	most, err := connections(1)
	if err != nil {
		say("%v", err)
		return 1
	}
	f, err := newBalancer("127.0.0.1:0", most, say, backend)
	if err != nil {
		say("%v", err)
		return 1
	}
	say("%s", f.listener.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}} //nolint:gosec // a test's replica
	if err := f.run(ctx, client); err != nil {
		say("%v", err)
		return 1
	}
	return 0
}

// More clients come than there are descriptors for: those that there is room for are served, the others once these have
// gone.
func TestMoreClientsThanDescriptorsWaitForEachOther(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	replica := startBackend(t, "a", &ready)
	defer replica.Close()
	address, said, end := startBalancer(t, replica.Listener.Addr().String())
	client := replica.Client()
	ask := func() error {
		client.CloseIdleConnections()
		resp, err := client.Get("https://" + address + "/")
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	}
	for deadline := time.Now().Add(30 * time.Second); ask() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the balancer never served")
		}
	}
	var crowd []net.Conn
	for range fewDescriptors + fewDescriptors/5 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	if text := <-said; !strings.Contains(text, "64 connections") {
		t.Errorf("it does not say what others wait for: %q", text)
	}
	late := make(chan error, 1)
	go func() { late <- ask() }()
	for _, c := range crowd {
		_ = c.Close()
	}
	if err := <-late; err != nil {
		t.Errorf("who waited is not served: %v", err)
	}
	client.CloseIdleConnections()
	if err := end(); err != nil {
		t.Errorf("the balancer ended with %v", err)
	}
}

// startBalancer starts a balancer in a process of its own. output is what it says after its address; end ends it.
func startBalancer(t *testing.T, backend string) (address string, output <-chan string, end func() error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), balancerTo+"="+backend)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	end = func() error {
		_ = in.Close()
		for range lines {
		}
		return cmd.Wait()
	}
	t.Cleanup(func() { _ = end() })
	return <-lines, lines, end
}

func TestAReplicaServesOnUntilTheBalancerHasNoticedThatItStops(t *testing.T) {
	cfg := Config{Options: &Options{RootDirectory: t.TempDir(), Replicas: 2, Shards: 1, Start: []string{"--shutdown-delay-duration=9s"}}}
	s := (&system{cfg: cfg, out: &output{to: io.Discard}}).newShard(0, storagebackend.TransportConfig{})
	for _, c := range s.children {
		var given []string
		for _, arg := range c.args {
			if value, ok := strings.CutPrefix(arg, "--shutdown-delay-duration="); ok {
				given = append(given, value)
			}
		}
		// Of a flag that is given twice the last one counts: the user's.
		if len(given) != 2 || given[1] != "9s" {
			t.Fatalf("%s: the delay is given as %q, want dev's and then the user's", c.name, given)
		}
		if delay, err := time.ParseDuration(given[0]); err != nil || delay <= readyPeriod {
			t.Errorf("%s serves on for %q, %v: the balancer asks every %v only", c.name, given[0], err, readyPeriod)
		}
	}
}
