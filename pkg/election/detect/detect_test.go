package detect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(poorVariable); kind != "" {
		if err := poorLeader(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// within is longer than anything takes that happens in these tests.
const within = 20 * time.Second

var shardSecret = []byte("what the shard's replicas know")

// newDetector returns a Detector that finds silence after 300 ms.
func newDetector(t *testing.T, replica, listen string) *Detector {
	t.Helper()
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Name: "test-" + replica, Replica: replica, Listen: listen, Advertise: host, Interval: 50 * time.Millisecond, Misses: 6})
	if err != nil {
		t.Fatal(err)
	}
	d.handshake = 200 * time.Millisecond
	return d
}

func open(t *testing.T, replica, listen string, change ...func(*Detector)) *Detector {
	t.Helper()
	d := newDetector(t, replica, listen)
	for _, c := range change {
		c(d)
	}
	if err := d.Open(t.Context(), shardSecret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// follower is a standby that records what it learns.
type follower struct {
	*Detector
	news  chan election.News
	reads func(context.Context, string) bool
	is    election.Standby
	stop  context.CancelFunc
	ended chan struct{}
}

// follow follows a leader until the test ends.
func follow(t *testing.T, leader election.Contact, change ...func(*follower)) *follower {
	t.Helper()
	f := &follower{
		Detector: newDetector(t, "standby", "127.0.0.1:0"), news: make(chan election.News, 1000),
		reads: func(context.Context, string) bool { return true }, ended: make(chan struct{}),
	}
	f.secret = shardSecret
	for _, c := range change {
		c(f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	go func() {
		defer close(f.ended)
		f.Follow(ctx, leader, election.Follower{
			Is:     f.is,
			Report: func(n election.News) { f.news <- n },
			Writes: func(ctx context.Context, holder string) bool { return f.reads(ctx, holder) },
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-f.ended
	})
	return f
}

// next waits for the wanted news, and fails on news that may not come before it.
func (f *follower) next(t *testing.T, want func(election.News) bool, never ...election.Sign) election.News {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case n := <-f.news:
			if slices.Contains(never, n.Sign) {
				t.Fatalf("news: %+v", n)
			}
			if want(n) {
				return n
			}
		case <-timeout:
			t.Fatal("no such news")
		}
	}
}

func sign(s election.Sign) func(election.News) bool {
	return func(n election.News) bool { return n.Sign == s }
}

// mustBe waits until the metrics show a state. It fails on news of death or silence before that.
func (f *follower) mustBe(t *testing.T, want state) {
	t.Helper()
	for began := time.Now(); time.Since(began) < within; time.Sleep(time.Millisecond) {
		if seriestest.Value(t, "regent_failure_detection_contact", f.cfg.Name, string(want)) == 1 {
			for len(f.news) > 0 {
				if n := <-f.news; n.Sign == election.Dead || n.Sign == election.Silent {
					t.Fatalf("news: %+v", n)
				}
			}
			return
		}
	}
	t.Fatalf("never %s", want)
}

func TestADeathIsSeen(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	f := follow(t, leader.Contact())
	f.next(t, sign(election.Alive))
	leader.Close() // as the kernel does, connections first or listener first
	n := f.next(t, sign(election.Dead), election.NoSign)
	if age := time.Since(n.Since); age < 0 || age > within {
		t.Errorf("contact broke off %v ago", age)
	}
}

// Only a refusal by the address where the leader answered before is its death, whatever else is at an address.
func TestWhatIsNoDeath(t *testing.T) {
	other := open(t, "other", "127.0.0.1:0", patient)
	for name, test := range map[string]struct {
		leader func(t *testing.T) election.Contact
		change func(*follower)
		want   state
	}{
		"the leader gives no address": {
			leader: func(*testing.T) election.Contact { return election.Contact{} },
			want:   absent,
		},
		"nobody was ever there": {
			leader: func(t *testing.T) election.Contact {
				gone := open(t, "gone", "127.0.0.1:0")
				gone.Close()
				return gone.Contact()
			},
			want: refused,
		},
		"no address at all": {
			leader: func(*testing.T) election.Contact { return election.Contact{Address: "nowhere", Key: "k"} },
			want:   unreachable,
		},
		"another process has the port": {
			leader: func(*testing.T) election.Contact {
				return election.Contact{Address: other.Contact().Address, Key: "of the leader"}
			},
			change: func(f *follower) { patient(f.Detector) },
			want:   untrusted,
		},
		"it accepts and never answers": {
			leader: func(t *testing.T) election.Contact {
				return election.Contact{Address: newFront(t, "").address(), Key: "k"}
			},
			want: unreachable,
		},
		"it speaks something else": {
			leader: func(t *testing.T) election.Contact {
				front := newFront(t, "")
				front.greet("220 mail.example.com ESMTP\r\n")
				return election.Contact{Address: front.address(), Key: "k"}
			},
			want: unreachable,
		},
		"it has another secret": {
			leader: func(*testing.T) election.Contact { return other.Contact() },
			change: func(f *follower) { patient(f.Detector); f.secret = []byte("of another shard") },
			want:   unauthorized,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*follower)
			if test.change != nil {
				changes = append(changes, test.change)
			}
			follow(t, test.leader(t), changes...).mustBe(t, test.want)
		})
	}
}

func TestAnAddressThatLiedMayTellTheTruthLater(t *testing.T) {
	front := newFront(t, "")
	leader := open(t, "leader", "127.0.0.1:0")
	f := follow(t, election.Contact{Address: front.address(), Key: leader.fingerprint})
	f.mustBe(t, unreachable)
	front.to(leader.listener.Addr().String())
	f.next(t, sign(election.Alive), election.Dead, election.Silent)
}

// A proxy in front of a dead process still accepts connections, like a process that hangs.
func TestALeaderBehindAnAddressThatAcceptsIsSilentNotDead(t *testing.T) {
	leader := openPlain(t) // without a witness, which would tell more
	front := newFront(t, leader.listener.Addr().String())
	f := follow(t, election.Contact{Address: front.address(), Key: leader.fingerprint})
	f.next(t, sign(election.Alive))
	leader.Close()
	n := f.next(t, sign(election.Silent), election.Dead, election.NoSign)
	if since := time.Since(n.Since); since < f.cfg.silence() {
		t.Errorf("silent after %v, want %v", since, f.cfg.silence())
	}
}

func TestALeaderThatPausesIsSilentAndAliveAgain(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	front := newFront(t, leader.listener.Addr().String())
	f := follow(t, election.Contact{Address: front.address(), Key: leader.fingerprint})
	f.next(t, sign(election.Alive))
	front.hold(true)
	f.next(t, sign(election.Silent), election.Dead)
	front.hold(false)
	f.next(t, sign(election.Alive), election.Dead)
}

// If this process did not run itself, beats wait to be read.
func TestAStandbyThatWasPausedItselfSuspectsNobody(t *testing.T) {
	d := newDetector(t, "standby", "127.0.0.1:0")
	f := &following{d: d, quiet: quiet{pulse: d.cfg.Interval / pulses}, follower: election.Follower{Report: func(n election.News) { t.Errorf("news: %+v", n) }}}
	f.news.Sign = election.Alive
	f.last = time.Now()
	f.pulse(t.Context(), f.last)
	f.pulse(t.Context(), f.last.Add(time.Minute))
}

func TestAStatementReachesAllWhoFollowAndThoseWhoComeLater(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0", patient)
	first := follow(t, leader.Contact(), unhurried)
	first.next(t, sign(election.Alive))
	said := election.Statement{Holder: "h", Condition: election.Over}
	leader.Say(said)
	for _, f := range []*follower{first, follow(t, leader.Contact(), unhurried)} {
		f.next(t, func(n election.News) bool { return n.Said == said }, election.Dead, election.Silent)
	}
	leader.Close()
	if n := first.next(t, sign(election.Dead)); n.Said != said {
		t.Errorf("the dead leader's last statement was %+v", n.Said)
	}
}

func TestALeaderInTroubleLearnsWhoCouldWriteTheLease(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	follow(t, leader.Contact(), func(f *follower) {
		f.Detector.cfg.Replica = "blind"
		f.reads = func(context.Context, string) bool { return false }
	})
	f := follow(t, leader.Contact(), func(f *follower) {
		f.reads = func(_ context.Context, holder string) bool { return holder == "h" }
	})
	f.next(t, sign(election.Alive))
	leader.Say(election.Statement{Holder: "h", Condition: election.Well})
	leader.Say(election.Statement{Holder: "h", Condition: election.Troubled})
	select {
	case c := <-leader.Confirmations():
		if want := (election.Confirmation{Standby: election.Standby{Replica: "standby"}, Holder: "h"}); c != want {
			t.Errorf("confirmed: %+v, want %+v", c, want)
		}
	case <-time.After(within):
		t.Fatal("nobody answers")
	}
}

func TestALeaderKnowsWhoFollowsIt(t *testing.T) {
	changed := make(chan struct{}, 1000)
	leader := open(t, "leader", "127.0.0.1:0", patient, func(d *Detector) {
		d.cfg.Changed = func() { changed <- struct{}{} }
	})
	is := election.Standby{Replica: "standby", Instance: "standby_1", Mode: election.ForLife{}.Name(), Priority: -7, Led: "the holder of its last term", URL: "https://127.0.0.1:6443"}
	f := follow(t, leader.Contact(), unhurried, func(f *follower) { f.is = is })
	f.next(t, sign(election.Alive))
	receive(t, changed)
	if got := leader.Followers(); !slices.Equal(got, []election.Standby{is}) {
		t.Errorf("followed by %+v, want %+v", got, is)
	}
	f.stop()
	<-f.ended
	// A stream to the witness may have been on its way: then the standby is told of twice, but nobody is left in
	// the end.
	for receive(t, changed); len(leader.Followers()) > 0; {
		receive(t, changed)
	}
}

func TestAnIPv6AddressCanBeDialled(t *testing.T) {
	d := newDetector(t, "leader", "[::1]:0")
	if err := d.Open(t.Context(), shardSecret); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	follow(t, d.Contact()).next(t, sign(election.Alive))
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	taken := open(t, "leader", "127.0.0.1:0")
	d := newDetector(t, "another", taken.listener.Addr().String())
	if err := d.Open(t.Context(), shardSecret); err == nil {
		d.Close()
		t.Error("opened it twice")
	}
	d.Close() // the detector was never opened
}

func TestAttemptsAreMadeInHasteOnlyAfterALoss(t *testing.T) {
	for name, test := range map[string]struct {
		answered bool
		since    time.Duration
		n        int
		want     time.Duration
	}{
		"just lost":            {true, 0, 0, time.Millisecond},
		"lost a while ago":     {true, time.Second, 50, 250 * time.Millisecond},
		"never there":          {false, time.Hour, 0, 100 * time.Millisecond},
		"never there, again":   {false, time.Hour, 3, 800 * time.Millisecond},
		"never there, forever": {false, time.Hour, 1000, 15 * time.Second},
	} {
		if got := pause(test.answered, test.since, test.n); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestABadConfigIsExplained(t *testing.T) {
	for _, test := range []struct {
		field  string
		change func(*Config)
	}{
		{"Interval", func(c *Config) { c.Interval = time.Millisecond }},
		{"Interval", func(c *Config) { c.Interval = time.Hour }},
		{"Misses", func(c *Config) { c.Misses = 1 }},
		{"Misses", func(c *Config) { c.Misses = math.MaxInt64 }},
		{"Replica", func(c *Config) { c.Replica = "" }},
		{"Advertise", func(c *Config) { c.Advertise = "" }},
		{"Advertise", func(c *Config) { c.Advertise = net.IP(nil).String() }},
		{"Advertise", func(c *Config) { c.Advertise = "0.0.0.0" }},
		{"", func(*Config) {}},
	} {
		cfg := DefaultConfig()
		cfg.Name, cfg.Replica, cfg.Advertise = "test-bad", "a", "127.0.0.1"
		test.change(&cfg)
		switch _, err := New(cfg); {
		case test.field == "" && err != nil:
			t.Error(err)
		case test.field != "" && (err == nil || !strings.Contains(err.Error(), "Config."+test.field)):
			t.Errorf("%+v: error %v, want one that names %s", cfg, err, test.field)
		}
	}
}

// actAs serves every request at a probe's address, with the probe's key.
func actAs(t *testing.T, leader *Detector, serve http.HandlerFunc) election.Contact {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: serve, Protocols: new(http.Protocols), ReadHeaderTimeout: within,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{leader.certificate}},
	}
	server.Protocols.SetHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return election.Contact{Address: listener.Addr().String(), Key: leader.fingerprint}
}

// receive waits for a value that must come.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(within):
		t.Fatal("it never comes")
		panic("unreachable")
	}
}

func TestALeaderThatBreaksEachContactIsNotDialledInHaste(t *testing.T) {
	contacts := make(chan time.Time, 1000)
	follow(t, actAs(t, newDetector(t, "leader", "127.0.0.1:0"), func(w http.ResponseWriter, _ *http.Request) {
		contacts <- time.Now()
		_, _ = w.Write(lineOf(election.Statement{}))
	}))
	// A contact that takes long on a busy machine begins the count of brief ones anew: so the slow pauses may come
	// later.
	const slow, most = 3, 50
	pauses, last := 0, receive(t, contacts)
	for n := 1; pauses < slow; n++ {
		now := receive(t, contacts)
		if pauses++; now.Sub(last) < steady {
			pauses = 0
		}
		if last = now; n > most {
			t.Fatalf("after %d contacts it does not pause for %v between them", n, steady)
		}
	}
}

func TestALeaderThatAcceptsAndSendsNoBeatIsTriedAgain(t *testing.T) {
	contacts := make(chan struct{}, 1000)
	follow(t, actAs(t, newDetector(t, "leader", "127.0.0.1:0"), func(w http.ResponseWriter, req *http.Request) {
		contacts <- struct{}{}
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	for range 2 {
		select {
		case <-contacts:
		case <-time.After(within):
			t.Fatal("no other attempt")
		}
	}
}

// A leader that drains or is quarantined goes on saying that it is in trouble.
func TestALeaderInTroubleIsNotAnsweredAtEachBeat(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	reads := make(chan time.Time, 1000)
	follow(t, leader.Contact(), func(f *follower) {
		// A busy machine does not break contact, because a standby that dials again is answered at once.
		f.Detector.handshake = within
		f.Detector.cfg.Interval, f.Detector.cfg.Misses = shortestInterval, mostMisses
		f.reads = func(context.Context, string) bool { reads <- time.Now(); return true }
	})
	leader.Say(election.Statement{Holder: "h", Condition: election.Troubled})
	first := receive(t, reads)
	if pause := receive(t, reads).Sub(first); pause < askAgain {
		t.Errorf("read the Lease again after %v", pause)
	}
}

// A peer may hold a connection no longer than it needs to show the credential.
func TestAStrangerThatReadsNothingLosesItsConnection(t *testing.T) {
	// It must lose it, but not before it has sent anything.
	leader := open(t, "leader", "127.0.0.1:0", func(d *Detector) { d.handshake = 5 * time.Second })
	conn, err := tls.Dial("tcp", leader.Contact().Address, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+
		// SETTINGS: a window of 0, so that no body can be sent
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00"+"\x00\x04\x00\x00\x00\x00"+
		// HEADERS: POST, https, authority x
		"\x00\x00\x11\x01\x04\x00\x00\x00\x01"+"\x83\x87\x41\x01x\x44\x0a"+path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(within))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it keeps its connection for %v", within)
	}
}

func TestALeaderWhoseContactBrokeOffIsNotShownAsAlive(t *testing.T) {
	leader := openPlain(t) // without a witness, which would tell more
	front := newFront(t, leader.listener.Addr().String())
	f := follow(t, election.Contact{Address: front.address(), Key: leader.fingerprint}, func(f *follower) {
		// it is not silent before the test is over
		f.Detector.cfg.Misses = int(within / f.Detector.cfg.Interval)
	})
	f.mustBe(t, alive)
	front.to("")
	leader.Close()
	f.mustBe(t, connecting)
}

// With short intervals the misses may last less than a handshake.
func TestALeaderThatAnswersSlowlyIsReachedAgain(t *testing.T) {
	contacts := make(chan struct{}, 1000)
	contact := actAs(t, newDetector(t, "leader", "127.0.0.1:0"), func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100 * time.Millisecond)
		if _, err := w.Write(lineOf(election.Statement{})); err == nil {
			_ = http.NewResponseController(w).Flush()
			contacts <- struct{}{}
		}
	})
	f := follow(t, contact, func(f *follower) {
		f.Detector.handshake = within
		f.Detector.cfg.Interval, f.Detector.cfg.Misses = shortestInterval, 2
	})
	f.next(t, sign(election.Alive))
	f.next(t, sign(election.Silent))
	f.next(t, sign(election.Alive))
}

// front is a TCP proxy that accepts connections, whatever is behind it.
type front struct {
	listener net.Listener
	all      sync.WaitGroup

	mu       sync.Mutex
	backend  string // empty: nothing, connections stay open
	greeting string
	held     bool
	freed    *sync.Cond
	conns    []net.Conn
	closed   bool
}

func newFront(t *testing.T, backend string) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: listener, backend: backend}
	f.freed = sync.NewCond(&f.mu)
	f.all.Go(f.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		f.closed, f.held = true, false
		f.freed.Broadcast()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.all.Wait()
	})
	return f
}

func (f *front) address() string { return f.listener.Addr().String() }

func (f *front) to(backend string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backend = backend
}

func (f *front) greet(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.greeting = text
}

// hold holds back all bytes, or releases them.
func (f *front) hold(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	f.freed.Broadcast()
}

func (f *front) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		if !f.keep(conn) {
			return
		}
		f.mu.Lock()
		backend, greeting := f.backend, f.greeting
		f.mu.Unlock()
		_, _ = io.WriteString(conn, greeting)
		if backend == "" {
			continue
		}
		behind, err := net.Dial("tcp", backend)
		if err != nil || !f.keep(behind) {
			_ = conn.Close()
			continue
		}
		f.all.Go(func() { f.copy(conn, behind) })
		f.all.Go(func() { f.copy(behind, conn) })
	}
}

// keep closes a connection at the end of the test.
func (f *front) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = conn.Close()
		return false
	}
	f.conns = append(f.conns, conn)
	return true
}

func (f *front) copy(to, from net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		f.mu.Lock()
		for f.held {
			f.freed.Wait()
		}
		f.mu.Unlock()
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

func TestAConfigThatSaysNothingHasTheDefaults(t *testing.T) {
	d, err := New(Config{Name: "test-defaults", Replica: "a", Listen: "127.0.0.1:0", Advertise: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := DefaultConfig().silence(); d.cfg.silence() != want {
		t.Errorf("silent after %v, want %v", d.cfg.silence(), want)
	}
}

func TestANameThatFitsInNoHeaderIsAnErrorOfNew(t *testing.T) {
	for name, faulty := range map[string]bool{
		"replica-1": false, "": true, "Replik 1, \u00fcber": false, strings.Repeat("a", longestReplica): false,
		"a\nb": true, "a\x00": true, strings.Repeat("a", longestReplica+1): true,
	} {
		if _, err := New(Config{Name: "test-names", Replica: name, Advertise: "127.0.0.1"}); (err != nil) != faulty {
			t.Errorf("%q: error %v, want one: %t", name, err, faulty)
		}
	}
}
