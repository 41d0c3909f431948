package edge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/fairness"
)

// asWatch returns ctx as that of a watch of somebody.
func asWatch(ctx context.Context, who string) context.Context {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: who, Groups: []string{user.SystemPrivilegedGroup}})
	return request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "watch", IsResourceRequest: true})
}

// watching sends a watch of somebody through s, whose handler runs until ctx ends; begun lets it begin.
func watching(ctx context.Context, s *watches, who string, begun <-chan struct{}) int {
	recorder := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(asWatch(ctx, who))
	s.wrap(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-begun:
			flowcontrol.WatchInitialized(req.Context())
			<-req.Context().Done()
		case <-req.Context().Done():
		}
	})).ServeHTTP(recorder, req)
	return recorder.Code
}

var tenantsMade atomic.Int64

// ofAnyTenant makes each watch one of a tenant of its own.
func ofAnyTenant(ctx context.Context) fairness.Flow {
	return ofTenant(ctx, fmt.Sprint("tenant", tenantsMade.Add(1)))
}

func ofTenant(ctx context.Context, tenant string) fairness.Flow {
	who, _ := request.UserFrom(ctx)
	return fairness.Flow{Tenant: tenant, User: who.GetName(), Person: who.GetName()}
}

// Many users in one cluster do not get it more watches, and any other cluster still gets some.
func TestWatchesOfOneClusterLeaveAsManyToOthersAsItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 8
		var tenant string
		s := newWatches(limit, time.Minute, func(ctx context.Context) fairness.Flow { return ofTenant(ctx, tenant) }, apis.Codecs)
		begun := make(chan struct{})
		close(begun)
		ctx, cancel := context.WithCancel(t.Context())
		var open sync.WaitGroup
		got := map[string]int{}
		for _, c := range []struct {
			tenant string
			want   int
		}{{"greedy", limit / 2}, {"next", limit / 4}, {"third", 1}} {
			tenant = c.tenant
			refused := false
			for n := range limit {
				status := make(chan int, 1)
				open.Go(func() { status <- watching(ctx, s, fmt.Sprint(c.tenant, "'s user ", n), begun) })
				synctest.Wait()
				select {
				case code := <-status:
					refused = code == http.StatusTooManyRequests
				default:
					got[c.tenant]++
				}
			}
			if got[c.tenant] != c.want || !refused {
				t.Errorf("%s has %d watches, want %d; refused %t", c.tenant, got[c.tenant], c.want, refused)
			}
		}
		cancel()
		open.Wait()
		if len(s.tenants) != 0 || s.open != 0 {
			t.Errorf("%v are counted, %d in all, though none is open", s.tenants, s.open)
		}
	})
}

func TestAWatchThatDoesNotBeginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatches(0, time.Minute, ofAnyTenant, apis.Codecs)
		asked := time.Now()
		watching(t.Context(), s, "ann", nil)
		if waited := time.Since(asked); waited != s.timeout {
			t.Errorf("a watch that does not begin ended after %v, want %v", waited, s.timeout)
		}
		if len(s.users) != 0 || s.open != 0 {
			t.Errorf("%d users are left with %d watches", len(s.users), s.open)
		}
	})
}

func TestWatchesAreCappedInAllAndPerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatches(4, time.Minute, ofAnyTenant, apis.Codecs)
		begun := make(chan struct{})
		close(begun)
		ends := map[string]context.CancelFunc{}
		for _, step := range []struct {
			who  string
			open bool
		}{{"ann", true}, {"ann", true}, {"ann", false}, {"bob", true}, {"bob", true}, {"cid", false}} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ends[step.who] = cancel
			status := make(chan int, 1)
			go func() { status <- watching(ctx, s, step.who, begun) }()
			synctest.Wait()
			if open := len(status) == 0; open != step.open {
				t.Fatalf("%s's watch is open: %t, want %t", step.who, open, step.open)
			}
			if !step.open {
				if got := <-status; got != http.StatusTooManyRequests {
					t.Errorf("%s's watch: %d, want 429", step.who, got)
				}
			}
		}
		ends["bob"]()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		status := make(chan int, 1)
		go func() { status <- watching(ctx, s, "cid", begun) }()
		synctest.Wait()
		if len(status) != 0 {
			t.Errorf("a watch has ended, and yet another one is refused: %d", <-status)
		}
		cancel()
	})
}

// endless writes until it cannot.
func endless(w io.Writer, flush func()) {
	for piece := make([]byte, 64<<10); ; flush() {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// A client that takes nothing must not hold its watch, and a place for watches that begin, for ever: what is being
// written then heeds no context.
func TestAWatchWhoseClientTakesNothingEnds(t *testing.T) {
	t.Parallel()                // most of it is waiting
	const timeout = time.Second // in which a busy machine begins a watch, and writes to it
	for name, c := range map[string]struct {
		http2   bool
		handler func(t *testing.T, w http.ResponseWriter, req *http.Request)
	}{
		"that begins, HTTP/1":    {false, func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { endless(w, w.(http.Flusher).Flush) }},
		"that begins, HTTP/2":    {true, func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { endless(w, w.(http.Flusher).Flush) }},
		"that has begun, HTTP/1": {false, begunAndIdle(timeout)},
		"that has begun, HTTP/2": {true, begunAndIdle(timeout)},
		"over a websocket": {false, func(t *testing.T, w http.ResponseWriter, req *http.Request) {
			flowcontrol.WatchInitialized(req.Context())
			conn, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			endless(buffered, func() { _ = buffered.Flush() })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWatches(0, timeout, ofAnyTenant, apis.Codecs)
			ended := make(chan struct{})
			watch := s.wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { c.handler(t, w, req) }))
			server := httptest.NewUnstartedServer(withAnswerDeadline(timeout, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer close(ended)
				watch.ServeHTTP(w, req.WithContext(asWatch(req.Context(), "ann")))
			})))
			server.EnableHTTP2 = c.http2
			server.StartTLS()
			defer server.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				server.CloseClientConnections()
				t.Fatal("it goes on")
			}
			if s.open != 0 {
				t.Errorf("%d are open, want none", s.open)
			}
		})
	}
}

// begunAndIdle is a watch that has nothing to tell for much longer than a request may take.
func begunAndIdle(timeout time.Duration) func(*testing.T, http.ResponseWriter, *http.Request) {
	return func(t *testing.T, w http.ResponseWriter, req *http.Request) {
		flowcontrol.WatchInitialized(req.Context())
		w.(http.Flusher).Flush()
		select {
		case <-req.Context().Done():
			t.Error("an idle watch was ended")
			return
		case <-time.After(5 * timeout):
		}
		if _, err := w.Write([]byte("something")); err != nil {
			t.Errorf("an idle watch cannot be written to any more: %v", err)
		}
		w.(http.Flusher).Flush()
		endless(w, w.(http.Flusher).Flush)
	}
}
