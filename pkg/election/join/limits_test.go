package join

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
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
	gate := make(chan struct{})
	defer close(gate)
	for name, start := range map[string]func(began func()){
		"a timer's function": func(began func()) {
			time.AfterFunc(0, func() { began(); <-gate })
		},
		"a goroutine that replaces its labels": func(began func()) {
			go pprof.Do(context.Background(), pprof.Labels("mine", "yes"), func(context.Context) { began(); <-gate })
		},
		"what is started outside": func(began func()) {
			Outside(func() { go func() { began(); <-gate }() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, began := scope(t), make(chan struct{})
			s.Do(func(context.Context) {
				start(func() { OnEnd(func() { t.Error("registered in the scope") }); close(began) })
			})
			<-began
			mustEnd(t, "the end", ends(s.End))
		})
	}
}

func TestWhatIsInTheScope(t *testing.T) {
	for name, start := range map[string]func(ctx context.Context, live func()){
		"a function of context.AfterFunc": func(ctx context.Context, live func()) { context.AfterFunc(ctx, live) },
		"a goroutine that adds labels": func(ctx context.Context, live func()) {
			go pprof.Do(ctx, pprof.Labels("mine", "yes"), func(context.Context) { live() })
		},
		"a goroutine of a locked thread": func(_ context.Context, live func()) {
			go func() { runtime.LockOSThread(); live() }()
		},
		"what a goroutine of an inner scope starts": func(ctx context.Context, live func()) {
			go func() { _ = Run(ctx, quiet, func(context.Context) error { go live(); return nil }) }()
		},
		"what waits in an undo function": func(_ context.Context, live func()) { OnEnd(live) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s, gate, began := New(ctx, quiet), make(chan struct{}), make(chan struct{})
			s.Do(func(ctx context.Context) { start(ctx, func() { close(began); <-gate }) })
			cancel()
			done := ends(s.End)
			mustEnd(t, "its beginning", began)
			staysOpen(t, "End has returned", done)
			close(gate)
			mustEnd(t, "the end", done)
		})
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
