package join

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/workqueue"
)

// get fetches a URL and reads the answer, so that the connection is free again.
func get(t *testing.T, client *http.Client, url string) {
	t.Helper()
	resp, err := client.Get(url) //nolint:noctx // a test of what no context ends
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func TestConnectionsAreLeftAloneAndRequestsAreNot(t *testing.T) {
	for _, name := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(name, func(t *testing.T) {
			answer := make(chan struct{})
			arrived := make(chan struct{}, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					arrived <- struct{}{}
					<-answer
				}
			}))
			server.EnableHTTP2 = name == "HTTP/2"
			server.StartTLS()
			defer server.Close()
			client := server.Client()
			defer client.CloseIdleConnections()

			s := scope(t)
			s.Do(func(context.Context) {
				get(t, client, server.URL)
				go get(t, client, server.URL+"/slow")
			})
			<-arrived
			left, _ := look()
			if connections := len(left.groups) - len(s.among(left)); connections == 0 {
				t.Error("no goroutine of a connection is in the scope: this test shows nothing")
			}
			done := ends(s.End)
			staysOpen(t, "End has returned, with a request under way", done)
			close(answer)
			mustEnd(t, "the end of a scope whose connections are open", done)
		})
	}
}

func TestLookupsDiallingAndHandshakesAreLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		left  string // a function that the scope leaves alone
		begin func(ctx context.Context, hang func())
	}{
		"a lookup": {"net.(*Resolver).lookupIPAddr", func(ctx context.Context, hang func()) {
			_, _ = resolver(hang).LookupIPAddr(ctx, "name.example")
		}},
		"dialling": {"net/http.(*Transport).dialConnFor", func(ctx context.Context, hang func()) {
			request(ctx, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { hang(); return nil, io.EOF }})
		}},
		"a handshake": {"net/http.(*persistConn).addTLS", func(ctx context.Context, hang func()) {
			request(ctx, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return mute{hang: hang}, nil }})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, began, gate := scope(t), make(chan struct{}), make(chan struct{})
			var once sync.Once
			s.Do(func(ctx context.Context) {
				go c.begin(ctx, func() {
					once.Do(func() { close(began) })
					<-gate
				})
			})
			mustEnd(t, "its beginning", began)
			done := ends(s.End)
			mustEnd(t, "the end", done)
			at, _ := look()
			if !slices.ContainsFunc(at.groups, func(g group) bool { return s.contains(g.path) && on(g.stack, c.left) }) {
				t.Error("nothing that the scope leaves alone goes on: this test shows nothing")
			}
			close(gate)
			eventually(t, "nothing is left", func() bool {
				left, _ := look()
				return !slices.ContainsFunc(left.groups, func(g group) bool { return s.contains(g.path) })
			})
		})
	}
}

func TestAGoroutineThatLooksANameUpIsWaitedFor(t *testing.T) {
	s, began, gate := scope(t), make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	s.Do(func(ctx context.Context) {
		go func() { _, _ = resolver(func() { begin(); <-gate }).LookupHost(ctx, "name.example") }()
	})
	mustEnd(t, "its beginning", began)
	done := ends(s.End)
	staysOpen(t, "End has returned", done)
	close(gate)
	mustEnd(t, "the end", done)
}

// resolver returns one that calls hang for each question.
func resolver(hang func()) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { hang(); return nil, io.EOF }}
}

// request makes a request that ends with ctx.
func request(ctx context.Context, connections http.RoundTripper) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://name.example", http.NoBody)
	if err != nil {
		panic(err)
	}
	_, _ = connections.RoundTrip(req) //nolint:bodyclose // there is no answer
}

// mute is a connection on which nothing is ever sent.
type mute struct {
	net.Conn
	hang func()
}

func (m mute) Write([]byte) (int, error) { m.hang(); return 0, io.EOF }
func (m mute) Close() error              { return nil }

func TestTheLoopOfSignalsIsLeftAlone(t *testing.T) {
	s, signals := scope(t), make(chan os.Signal, 1)
	s.Do(func(context.Context) { signal.Notify(signals, os.Interrupt) })
	defer signal.Stop(signals)
	mustEnd(t, "the end", ends(s.End))
}

func TestFunctionsThatTheEmbedderNamesAreLeftAlone(t *testing.T) {
	gate := make(chan struct{})
	s := New(t.Context(), Options{Leave: []string{ownPackage + ".pool"}})
	s.Do(func(context.Context) { go pool(gate) })
	mustEnd(t, "the end", ends(s.End))
	close(gate)
}

func pool(gate chan struct{}) { func() { <-gate }() }

// These are the limits in the package comment. If one of these tests fails, the limit has gone.
func TestWhatIsNotInTheScope(t *testing.T) {
	for name, enter := range map[string]func(t *testing.T, live func()){
		"a timer's function":             func(_ *testing.T, live func()) { time.AfterFunc(0, live) },
		"what a timer's function starts": func(_ *testing.T, live func()) { time.AfterFunc(0, func() { go live() }) },
		"a finalizer": func(_ *testing.T, live func()) {
			collect(func(garbage *[]byte) { runtime.SetFinalizer(garbage, func(*[]byte) { live() }) })
		},
		"a cleanup": func(_ *testing.T, live func()) {
			collect(func(garbage *[]byte) { runtime.AddCleanup(garbage, func(int) { live() }, 0) })
		},
		"a goroutine that replaces its labels": func(_ *testing.T, live func()) {
			go pprof.Do(context.Background(), pprof.Labels("mine", "yes"), func(context.Context) { live() })
		},
		"what is started outside": func(_ *testing.T, live func()) {
			Outside(func() { go live() })
		},
		"a handler that was added before its informer was started": func(t *testing.T, live func()) {
			process, source := newInformer()
			_, _ = process.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { live() }})
			Outside(func() { start(t, process) })
			source.Add(object("a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, began, gate := scope(t), make(chan struct{}), make(chan struct{})
			defer close(gate)
			s.Do(func(context.Context) {
				enter(t, func() {
					OnEnd(func() { t.Error("registered in the scope") })
					close(began)
					<-gate
				})
			})
			mustEnd(t, "its beginning", began)
			mustEnd(t, "the end", ends(s.End))
		})
	}
}

// collect lets the garbage collector find what attach was called with.
func collect(attach func(garbage *[]byte)) {
	<-ends(func() { attach(new([]byte)) }) // of its stack nothing is left
	runtime.GC()
}

// A library starts a worker at its first use, and it lives as long as the process.
func TestAWorkerOfALibraryIsWaitedForAndNamedUnlessItIsStartedOutside(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(t *testing.T, stop <-chan struct{})
		want string // how the report names it
	}{
		"an informer that is started with the context of the process": {func(_ *testing.T, stop <-chan struct{}) {
			process, _ := newInformer()
			go process.Run(stop)
		}, "k8s.io/client-go/tools/cache.(*sharedIndexInformer).Run"},
		"a work queue that nobody shuts down": {func(_ *testing.T, stop <-chan struct{}) {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			Outside(func() { go func() { <-stop; q.ShutDown() }() })
		}, "k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"},
	} {
		t.Run(name, func(t *testing.T) {
			stop, reports := make(chan struct{}), make(chan *Late, 1)
			s := New(t.Context(), Options{Patience: time.Millisecond, OnLate: func(l *Late) {
				select {
				case reports <- l:
				default:
				}
			}})
			s.Do(func(context.Context) { c.use(t, stop) })
			names := func() string { return (&Late{Goroutines: s.Running()}).Error() }
			eventually(t, "the worker runs", func() bool { return strings.Contains(names(), c.want) })
			done := ends(s.End)
			if late := <-reports; !strings.Contains(late.Error(), c.want) {
				t.Errorf("%v, want %s", late, c.want)
			}
			staysOpen(t, "End has returned", done)
			close(stop)
			mustEnd(t, "the end", done)

			stop = make(chan struct{})
			defer close(stop)
			s = scope(t)
			s.Do(func(context.Context) { Outside(func() { c.use(t, stop) }) })
			mustEnd(t, "the end of a scope in which it was started outside", ends(s.End))
		})
	}
}

// Nobody can end this worker in all versions of client-go. So the test runs in a process of its own, which ends with
// it.
func TestTheFirstClientWithACertificateByFileIsWaitedForUnlessItIsMadeOutside(t *testing.T) {
	const child, want = "JOIN_TEST_CHILD", "k8s.io/client-go/transport.(*dynamicClientCert).run"
	if os.Getenv(child) == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m") //nolint:gosec // this test
		again.Env = append(os.Environ(), child+"=yes")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "all of it") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	defer func() {
		if !t.Failed() {
			fmt.Println("all of it")
			os.Exit(0) // what is left would be found as a leak
		}
	}()
	client := clientWithFiles(t)
	s := New(context.Background(), quiet)
	s.Do(func(context.Context) { client() })
	eventually(t, "the worker runs in the scope", func() bool { return strings.Contains((&Late{Goroutines: s.Running()}).Error(), want) })
	mustEnd(t, "a second client, which shares what the first has started", ends(func() {
		_ = Run(context.Background(), quiet, func(context.Context) error { client(); return nil })
	}))
	outside := clientWithFiles(t)
	mustEnd(t, "the end of a scope in which it was started outside", ends(func() {
		_ = Run(context.Background(), quiet, func(context.Context) error { Outside(outside); return nil })
	}))
}

// clientWithFiles returns a function that makes a client, of a configuration that is like no other.
func clientWithFiles(t *testing.T) func() {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := rest.TLSClientConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	for file, content := range map[string][]byte{files.CertFile: certificate, files.KeyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if _, err := rest.HTTPClientFor(&rest.Config{Host: "https://localhost", TLSClientConfig: files}); err != nil {
			t.Error(err)
		}
	}
}

func TestGoroutinesThatWereThereBeforeAreNotWaitedFor(t *testing.T) {
	jobs, gate := make(chan func()), make(chan struct{})
	worker := ends(func() { (<-jobs)() })
	s := scope(t)
	s.Do(func(context.Context) { jobs <- func() { <-gate } })
	mustEnd(t, "the end", ends(s.End))
	close(gate)
	mustEnd(t, "the worker", worker)
}

func TestOutsidePanicsAsItsFunctionDoes(t *testing.T) {
	defer func() {
		if p, ok := recover().(*Panic); !ok || p.Value != "boom" || !strings.Contains(string(p.Stack), "TestOutsidePanics") {
			t.Errorf("recovered %v", p)
		}
	}()
	Outside(func() { panic("boom") })
}
