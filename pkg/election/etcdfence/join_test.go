package etcdfence_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/regent-project/regent/pkg/election/join"
)

// These are what the comment of package join says of gRPC. They are here because etcd's client is made of gRPC, and the
// module of join has none.

const patience = time.Minute

func mustEnd(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
	}
}

// end ends a scope.
func end(s *join.Scope) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); s.End() }()
	return done
}

// connect makes a client in a scope, and has it connect. It is closed at the end of the test, outside of the scope.
func connect(t *testing.T, s *join.Scope, target string, o ...grpc.DialOption) (client grpc_health_v1.HealthClient) {
	t.Helper()
	o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour}))
	s.Do(func(context.Context) {
		conn, err := grpc.NewClient(target, o...)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		conn.Connect()
		client = grpc_health_v1.NewHealthClient(conn)
	})
	return client
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// goesOn reports whether a goroutine of a scope has that function on its stack.
func goesOn(function string) bool {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	for record := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(record, `"regent.dev/join"`) && strings.Contains(record, function) {
			return true
		}
	}
	return false
}

// mustGoOn fails the test if no goroutine of a scope has that function on its stack.
func mustGoOn(t *testing.T, function string) {
	t.Helper()
	if !goesOn(function) {
		t.Errorf("no goroutine of the scope is in %s: this test shows nothing", function)
	}
}

// health answers at once, or when the gate opens.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	arrived, gate chan struct{}
}

func (h *health) Check(_ context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if req.Service == "slow" {
		close(h.arrived)
		<-h.gate
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func TestAConnectionOfGRPCIsLeftAloneAndACallIsNot(t *testing.T) {
	h := &health{arrived: make(chan struct{}), gate: make(chan struct{})}
	server, l := grpc.NewServer(), listen(t)
	grpc_health_v1.RegisterHealthServer(server, h)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	reports := make(chan *join.Late, 1)
	s := join.New(context.Background(), join.Options{Patience: time.Millisecond, OnLate: func(l *join.Late) {
		select {
		case reports <- l:
		default:
		}
	}})
	client := connect(t, s, "passthrough:///"+l.Addr().String())
	check := func(service string) {
		if _, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: service}); err != nil {
			t.Error(err)
		}
	}
	s.Do(func(context.Context) {
		check("")
		go check("slow")
	})
	mustEnd(t, "the call", h.arrived)
	done := end(s)
	// A report is of one moment: what the scope itself has started may not have ended yet.
	for giveUp, alone := time.After(patience), false; !alone; {
		select {
		case late := <-reports:
			alone = len(late.Goroutines) == 1 && strings.Contains(late.Stacks(), "TestAConnectionOfGRPC")
			if !alone {
				t.Logf("%v: want the call, and nothing else", late)
			}
		case <-giveUp:
			t.Fatal("the call is never late alone")
		}
	}
	close(h.gate)
	mustEnd(t, "the end", done)
	for _, loop := range []string{".(*http2Client).reader", ".(*http2Client).keepalive", ".NewHTTP2Client.func", ".(*CallbackSerializer).run"} {
		mustGoOn(t, loop)
	}
}

func TestAClientOfGRPCThatConnectsOrResolvesIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		left  string // a function that the scope leaves alone
		begin func(t *testing.T, s *join.Scope, hang func())
	}{
		"connecting": {"grpc.(*addrConn).", func(t *testing.T, s *join.Scope, hang func()) {
			connect(t, s, "passthrough:///name.example", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { hang(); return nil, io.EOF }))
		}},
		"a server that says nothing": {"grpc.(*addrConn).", func(t *testing.T, s *join.Scope, hang func()) {
			l := listen(t)
			go func() {
				if conn, err := l.Accept(); err == nil {
					defer conn.Close()
					_, _ = conn.Read(make([]byte, 1))
					hang()
				}
			}()
			connect(t, s, "passthrough:///"+l.Addr().String())
		}},
		"resolving": {"dns.(*dnsResolver).watcher", func(t *testing.T, s *join.Scope, hang func()) {
			names, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = names.Close() })
			go func() {
				message := make([]byte, 512)
				for n, from, err := names.ReadFrom(message); err == nil; n, from, err = names.ReadFrom(message) {
					hang()
					message[2], message[3] = message[2]|0x80, 3 // the answer: there is no such name
					_, _ = names.WriteTo(message[:n], from)
				}
			}()
			connect(t, s, "dns://"+names.LocalAddr().String()+"/name.example")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, began, gate := join.New(context.Background(), join.Options{Patience: -1}), make(chan struct{}), make(chan struct{})
			defer close(gate)
			begin := sync.OnceFunc(func() { close(began) })
			c.begin(t, s, func() { begin(); <-gate })
			mustEnd(t, "its beginning", began)
			mustEnd(t, "the end", end(s))
			mustGoOn(t, c.left)
		})
	}
}

// A handler is in the scope in which its server serves, unless gRPC labels its goroutine anew. It does from v1.82 on,
// if the environment has it do so.
func TestAHandlerOfGRPCIsInTheScopeOfItsServerUnlessGRPCLabelsIt(t *testing.T) {
	const labels, child = "GRPC_GO_SERVER_GOROUTINE_LABELS", "JOIN_TEST_CHILD"
	if os.Getenv(child) == "" {
		for _, value := range []string{"none", "all"} {
			again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m") //nolint:gosec // this test
			again.Env = append(os.Environ(), child+"=yes", labels+"="+value)
			if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "labelled: "+value) {
				t.Errorf("%s=%s: %v\n%s", labels, value, err, out)
			}
		}
		return
	}
	h := &health{arrived: make(chan struct{}), gate: make(chan struct{})}
	server, l := grpc.NewServer(), listen(t)
	grpc_health_v1.RegisterHealthServer(server, h)
	s := join.New(context.Background(), join.Options{Patience: -1})
	s.Do(func(context.Context) { go func() { _ = server.Serve(l) }() })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: "slow"})
	}()
	mustEnd(t, "the call", h.arrived)
	anew := os.Getenv(labels) == "all" && version.MustParseGeneric(grpc.Version).AtLeast(version.MustParseGeneric("1.82.0"))
	if got := goesOn("(*health).Check"); got == anew {
		t.Errorf("gRPC %s, %s=%s: the handler is in the scope: %v", grpc.Version, labels, os.Getenv(labels), got)
	}
	close(h.gate)
	mustEnd(t, "the answer", called)
	_ = conn.Close()
	server.Stop()
	mustEnd(t, "the end", end(s))
	t.Log("labelled: " + os.Getenv(labels))
}
