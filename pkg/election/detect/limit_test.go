package detect

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// openPlain opens a probe without a thread of its own, as on systems where that is not possible.
func openPlain(t *testing.T, change ...func(*Detector)) *Detector {
	t.Helper()
	return openOn(t, func(l net.Listener) net.Listener { return l }, change...)
}

// openOn opens a probe on a listener that wraps a plain one.
func openOn(t *testing.T, moved func(net.Listener) net.Listener, change ...func(*Detector)) *Detector {
	t.Helper()
	d := newDetector(t, "leader", "127.0.0.1:0")
	for _, c := range change {
		c(d)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.open(t.Context(), shardSecret, moved(listener))
	t.Cleanup(d.Close)
	return d
}

// probes are the two ways in which a probe can listen.
var probes = map[string]func(*testing.T, ...func(*Detector)) *Detector{
	"plain": openPlain,
	"in its own thread": func(t *testing.T, change ...func(*Detector)) *Detector {
		return openOn(t, func(l net.Listener) net.Listener { return inOwnThread(t.Context(), l, ownTable) }, change...)
	},
}

// besiege keeps n connections of strangers open until the test ends. They send nothing, and each one that is closed is
// replaced.
func besiege(t *testing.T, address string, n int) (connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	var all sync.WaitGroup
	over := make(chan struct{})
	dialer := &net.Dialer{}
	// on other systems loopback is one address, and a standby gets in beside them only by luck
	if runtime.GOOS == "linux" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	for range n {
		all.Go(func() {
			for !passed(over) {
				conn, err := dialer.Dial("tcp", address)
				if err != nil {
					time.Sleep(time.Millisecond) // its queue is full
					continue
				}
				connections.Add(1)
				ended := make(chan struct{})
				all.Go(func() {
					defer close(ended)
					_, _ = io.Copy(io.Discard, conn)
				})
				select {
				case <-over:
				case <-ended:
				}
				_ = conn.Close()
				<-ended
			}
		})
	}
	t.Cleanup(func() {
		close(over)
		all.Wait()
	})
	return connections
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("never: %s", what)
		}
	}
}

// patient gives strangers so much time that they lose their connections only to make room for others.
func patient(d *Detector) { d.handshake = within }

func TestAStandbyGetsInThoughStrangersHoldAllPlaces(t *testing.T) {
	for name, open := range probes {
		t.Run(name, func(t *testing.T) {
			leader := open(t, patient)
			before := follow(t, leader.Contact(), unhurried)
			before.next(t, sign(election.Alive))
			made := besiege(t, leader.Contact().Address, 3*mostStrangers)
			waitFor(t, "the places are taken", func() bool { return made.Load() > 4*mostStrangers })
			follow(t, leader.Contact(), unhurried).next(t, sign(election.Alive), election.Dead)
			// Room is made for the latest one once it has come.
			if n := strangersOf(leader.listener.(*limitedListener)); n > mostStrangers+1 {
				t.Errorf("%d strangers have a place, of %d", n, mostStrangers)
			}
			for len(before.news) > 0 {
				if n := <-before.news; n.Sign != election.Alive {
					t.Errorf("who was there before loses contact: %+v", n)
				}
			}
		})
	}
}

func strangersOf(l *limitedListener) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.strangers)
}

func TestAStrangerLosesItsConnectionInTime(t *testing.T) {
	client := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}} //nolint:gosec // it is not the client that is tested
	for name, act := range map[string]func(net.Conn) error{
		"it says nothing": func(net.Conn) error { return nil },
		"it says one byte after the other": func(conn net.Conn) error {
			next := []byte{22, 3, 1, 0x40, 0} // a record of 16 KiB begins
			for {
				if _, err := conn.Write(next); err != nil {
					return err
				}
				next = []byte{1}
				time.Sleep(10 * time.Millisecond)
			}
		},
		"it shows no credential, again and again": func(conn net.Conn) error {
			secured := tls.Client(conn, client)
			if _, err := io.WriteString(secured, preface); err != nil {
				return err
			}
			for stream := uint32(1); ; stream += 2 {
				if _, err := secured.Write(headers(stream, ":method", "GET", ":scheme", "https", ":path", "/", ":authority", "x")); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		for kind, open := range probes {
			t.Run(name+"/"+kind, func(t *testing.T) {
				// most of it is waiting
				t.Parallel()
				// within which it is seen to have a place
				leader := open(t, func(d *Detector) { d.handshake = 5 * time.Second })
				conn, err := net.Dial("tcp", leader.Contact().Address)
				if err != nil {
					t.Fatal(err)
				}
				var acting sync.WaitGroup
				defer acting.Wait()
				defer func() { _ = conn.Close() }()
				acting.Go(func() { _ = act(conn) })
				waitFor(t, "it has a place", func() bool { return strangersOf(leader.listener.(*limitedListener)) == 1 })
				waitFor(t, "it loses it", func() bool { return strangersOf(leader.listener.(*limitedListener)) == 0 })
			})
		}
	}
}

// preface begins a connection of HTTP/2, with empty SETTINGS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// headers is the frame that opens a stream, RFC 9113 and 7541: no field is indexed, no text longer than 126 bytes.
func headers(stream uint32, fields ...string) []byte {
	var block []byte
	for i, text := range fields {
		if i%2 == 0 {
			block = append(block, 0)
		}
		block = append(append(block, byte(len(text))), text...)
	}
	const kind, endHeaders = 1, 4
	frame := []byte{0, byte(len(block) >> 8), byte(len(block)), kind, endHeaders}
	return append(binary.BigEndian.AppendUint32(frame, stream), block...)
}

// A standby without power does not keep its place. Neither does one that was paused, although its kernel still accepts
// data.
func TestAStandbyThatAnswersNothingLosesItsPlace(t *testing.T) {
	for name, open := range probes {
		t.Run(name, func(t *testing.T) {
			// most of it is waiting
			t.Parallel()
			// within which it is seen to follow, on a busy machine, too
			leader := open(t, patient, func(d *Detector) { d.stall = 5 * time.Second })
			conn, err := tls.Dial("tcp", leader.Contact().Address, withProtocol(trusting(leader.fingerprint)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, err = conn.Write(append([]byte(preface), headers(1, ":method", "POST", ":scheme", "https", ":path", path, ":authority", "x",
				"authorization", bearer+credential(shardSecret, leader.fingerprint),
				strings.ToLower(replicaHeader), "paused", strings.ToLower(intervalHeader), "50ms")...))
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "it follows", func() bool { return len(leader.Followers()) == 1 })
			_ = conn.SetReadDeadline(time.Now().Add(within))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it keeps its connection")
			}
			waitFor(t, "it does not follow any more", func() bool { return len(leader.Followers()) == 0 })
		})
	}
}

func withProtocol(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"h2"}
	return c
}

func TestAFollowerThatAnswersKeepsItsPlaceHoweverSeldomItAsksForBeats(t *testing.T) {
	for name, open := range probes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                  // most of it is waiting
			const stall = 3 * time.Second // a busy machine answers within that
			leader := open(t, patient, func(d *Detector) { d.stall = stall })
			f := follow(t, leader.Contact(), unhurried, func(f *follower) { f.Detector.cfg.Interval = 2 * stall })
			f.next(t, sign(election.Alive))
			for began := time.Now(); time.Since(began) < 3*stall; time.Sleep(time.Millisecond) {
				if got := leader.Followers(); len(got) != 1 {
					t.Fatalf("followed by %v", got)
				}
			}
		})
	}
}

func TestThereIsAnEndToThosePlacesThatTheCredentialGives(t *testing.T) {
	leader := openPlain(t)
	l := leader.listener.(*limitedListener)
	l.mu.Lock()
	l.authenticated = mostAuthenticated
	l.mu.Unlock()
	f := follow(t, leader.Contact())
	f.mustBe(t, unreachable)
	l.mu.Lock()
	l.authenticated--
	l.mu.Unlock()
	f.next(t, sign(election.Alive), election.Dead, election.Silent)
	f.stop()
	<-f.ended
	waitFor(t, "its place is free", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.authenticated == mostAuthenticated-1
	})
}

// addressed is a connection that seems to come from another address.
type addressed struct {
	net.Conn
	from string
}

func (a *addressed) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", a.from)
	if err != nil {
		panic(err)
	}
	return addr
}

func (a *addressed) Close() error { return nil }

func TestWhoHoldsManyPlacesTakesNobodyElses(t *testing.T) {
	many := func(from string, n int) (all []string) {
		for i := range n {
			all = append(all, strings.ReplaceAll(from, "#", fmt.Sprint(i)))
		}
		return all
	}
	for name, test := range map[string]struct {
		come []string
		want []string // the connections that must still be open
	}{
		"another machine":                         {append([]string{"10.0.0.1:7"}, many("10.0.0.2:#", 200)...), []string{"10.0.0.1:7"}},
		"another network":                         {append([]string{"[2001:db8:0:1::1]:7"}, many("[2001:db8:0:2::#]:7", 200)...), []string{"[2001:db8:0:1::1]:7"}},
		"the same one, but it came last":          {append(many("10.0.0.1:#", 200), "10.0.0.1:9"), []string{"10.0.0.1:9"}},
		"each has one":                            {append(many("10.0.0.#:7", 200), "10.0.1.1:9"), []string{"10.0.1.1:9", "10.0.0.199:7"}},
		"an IPv4 address that an IPv6 socket has": {append([]string{"10.0.0.1:7"}, many("[::ffff:10.0.0.2]:#", 200)...), []string{"10.0.0.1:7"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimitedListener(nil, "test", within, klog.Background())
			for _, from := range test.come {
				l.enter(&addressed{from: from})
			}
			var there []string
			for _, c := range slices.Clone(l.strangers) {
				there = append(there, c.RemoteAddr().String())
				_ = c.Close()
			}
			if len(there) != mostStrangers {
				t.Errorf("%d have a place", len(there))
			}
			for _, want := range test.want {
				if !slices.Contains(there, want) {
					t.Errorf("%s has lost its place to %v", want, there)
				}
			}
		})
	}
}

// exhausted is a listener that has no descriptor for new connections while its error is set.
type exhausted struct {
	net.Listener
	tries atomic.Int64
	err   atomic.Pointer[error]
}

// fail makes each further attempt fail with err; nil: attempts succeed.
func (e *exhausted) fail(err error) { e.err.Store(&err) }

func (e *exhausted) Accept() (net.Conn, error) {
	e.tries.Add(1)
	if err := *e.err.Load(); err != nil {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return &addressed{from: "10.0.0.1:7"}, nil
}

func (e *exhausted) Close() error { return nil }

func TestAListenerThatCannotAcceptPausesEverLonger(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EPERM} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := new(exhausted)
				inner.fail(err)
				l := newLimitedListener(inner, "test", within, klog.Background())
				var accepting sync.WaitGroup
				accepting.Go(func() {
					conn, err := l.Accept()
					if err != nil {
						t.Error(err)
						return
					}
					_ = conn.Close()
				})
				time.Sleep(3 * time.Second)
				synctest.Wait()
				// 5, 10, 20... 640 ms, and a second from then on
				if n := inner.tries.Load(); n < 9 || n > 11 {
					t.Errorf("tried %d times in 3 s", n)
				}
				inner.fail(nil)
				began := time.Now()
				accepting.Wait()
				if took := time.Since(began); took > longestAcceptPause {
					t.Errorf("accepts %v after it can", took)
				}
			})
		})
	}
}

func TestAPauseOfAListenerEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(exhausted)
		inner.fail(syscall.EMFILE)
		l := newLimitedListener(inner, "test", within, klog.Background())
		var accepting sync.WaitGroup
		accepting.Go(func() { _, _ = l.Accept() })
		time.Sleep(3 * time.Second)
		inner.fail(net.ErrClosed)
		began := time.Now()
		_ = l.Close()
		accepting.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("it ends %v later", took)
		}
	})
}

func TestAStrangerGivesItsDescriptorWhenNoneIsLeft(t *testing.T) {
	inner := new(exhausted)
	inner.fail(nil)
	l := newLimitedListener(inner, "test", within, klog.Background())
	for range 2 {
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	inner.fail(syscall.EMFILE)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if _, err := l.Accept(); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "one has made room", func() bool { return strangersOf(l) < 2 })
	inner.fail(nil)
	accepting.Wait()
	for _, c := range slices.Clone(l.strangers) {
		_ = c.Close()
	}
}

// poorVariable makes the test binary a leader that may have only poorDescriptors descriptors.
const (
	poorVariable    = "REGENT_TEST_POOR_LEADER"
	poorDescriptors = 40
)

// countingListener counts the attempts to accept.
type countingListener struct {
	net.Listener
	tries atomic.Int64
}

func (c *countingListener) Accept() (net.Conn, error) {
	c.tries.Add(1)
	return c.Listener.Accept()
}

// poorLeader opens a probe and writes its address. Then, for each line that it reads, it writes how often it has tried
// to accept.
func poorLeader(kind string) error {
	limit := syscall.Rlimit{Cur: poorDescriptors, Max: poorDescriptors}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	d, err := New(Config{Name: "poor", Replica: "leader", Listen: "127.0.0.1:0", Advertise: "127.0.0.1"})
	if err != nil {
		return err
	}
	ctx := context.Background()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if kind != "plain" {
		listener = inOwnThread(ctx, listener, ownTable)
	}
	l := &countingListener{Listener: listener}
	d.open(ctx, shardSecret, l)
	defer d.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(d.Contact()); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := out.Encode(l.tries.Load()); err != nil {
			return err
		}
	}
	return nil
}

// A leader that has no descriptors left because of strangers keeps its standbys, accepts new ones, and does not spin.
func TestALeaderWithoutDescriptorsKeepsItsStandbys(t *testing.T) {
	for kind := range probes {
		t.Run(kind, func(t *testing.T) {
			leader := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // this test
			leader.Env = append(os.Environ(), poorVariable+"="+kind)
			leader.Stderr = os.Stderr
			in, err := leader.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := leader.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := leader.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = in.Close()
				if err := leader.Wait(); err != nil {
					t.Error(err)
				}
			}()
			says := json.NewDecoder(out)
			var contact election.Contact
			if err := says.Decode(&contact); err != nil {
				t.Fatal(err)
			}
			tries := func() (n int64) {
				if _, err := io.WriteString(in, "\n"); err != nil {
					t.Fatal(err)
				}
				if err := says.Decode(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}

			before := follow(t, contact, unhurried)
			before.next(t, sign(election.Alive))
			made := besiege(t, contact.Address, 300)
			waitFor(t, "the descriptors are taken", func() bool { return made.Load() >= 300 })
			began, first := time.Now(), tries()
			time.Sleep(time.Second)
			n := tries() - first
			// Its first retry comes after 5 ms, and each stranger that makes room causes one more attempt.
			if most := 2*int64(time.Since(began)/shortestAcceptPause) + 2; n > most {
				t.Errorf("tried to accept %d times in %v", n, time.Since(began))
			}
			f := follow(t, contact, unhurried)
			f.next(t, sign(election.Alive), election.Dead)
			for len(before.news) > 0 {
				if n := <-before.news; n.Sign != election.Alive {
					t.Errorf("who was there before loses contact: %+v", n)
				}
			}
		})
	}
}

// unhurried waits for a leader as long as a standby does.
func unhurried(f *follower) {
	f.Detector.handshake = handshakeTimeout
	f.Detector.cfg.Interval, f.Detector.cfg.Misses = DefaultConfig().Interval, 50
}
