package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/edge"
)

// All places for requests and all connections but our own are taken, and the term goes on, with writes of its
// controllers.
func TestALeaderKeepsItsLeaseWhenAllPlacesAreTaken(t *testing.T) {
	t.Parallel() // most of it is waiting
	var full atomic.Bool
	writes, terms := make(chan error, 1000), make(chan int64, 100)
	root := t.TempDir()
	cfg := withController(t, config(t, root), func(ctx context.Context, deps controllers.Deps) error {
		terms <- deps.Token.Epoch
		leases := deps.Clients.Kube.CoreV1().Namespaces()
		for ctx.Err() == nil {
			if full.Load() {
				_, err := leases.Get(clusters.With(ctx, clusters.SystemAdmin), "nothing", metav1.GetOptions{})
				if ctx.Err() == nil { // else it was the term's end that ended the request
					writes <- err
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	cfg.Election.DrainTimeout = time.Second
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers+"t-bob,bob,5\n")
	// who waits is refused after a quarter of it
	cfg.Limits = edge.Limits{RequestsInFlight: 1, MutatingRequestsInFlight: 1, RequestTimeout: 4 * time.Second}
	hold := make(chan struct{})
	var held atomic.Int32
	r := startReplica(t, cfg, func(s *Server) {
		s.generic.Authorization.Authorizer = &asking{s.generic.Authorization.Authorizer, func(a authorizer.Attributes) {
			if a.GetPath() == "/hold" {
				held.Add(1)
				<-hold
			}
		}}
	})
	epoch := <-terms
	full.Store(true)
	var holders sync.WaitGroup
	// neither a cluster nor a user could have both places
	for cluster, token := range map[string]string{"root": "t-ann", "system:admin": "t-bob"} {
		holders.Go(func() {
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, r.url+"/clusters/"+cluster+"/hold", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+token)
			if resp, err := r.client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	until(t, "both places are taken", func() bool { return held.Load() >= 2 })
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if got := r.ask(t, method, "/clusters/system:admin/api/v1/namespaces", "t-ann"); got.status != http.StatusTooManyRequests {
			t.Errorf("%s of a user: %d, want 429: the places are not taken", method, got.status)
		}
	}
	for _, probe := range []string{"/livez", "/readyz", "/clusters/root/healthz"} {
		if got := r.ask(t, http.MethodGet, probe, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d, want 200: a replica would be restarted because its users are many", probe, got.status)
		}
	}
	lease := func() time.Time {
		got, err := r.adminIn(t, clusters.SystemAdmin).CoordinationV1().Leases(cfg.Election.Namespace).Get(t.Context(), cfg.Election.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Spec.RenewTime.Time
	}
	began := lease()
	until(t, "the lease is renewed while all places are taken", func() bool { return lease().Sub(began) >= cfg.Election.LeaseDuration+time.Second })
	close(hold)
	holders.Wait()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	select {
	case another := <-terms:
		t.Errorf("epoch %d ended, epoch %d began", epoch, another)
	default:
	}
	close(writes)
	for err := range writes {
		if err != nil && !strings.Contains(err.Error(), "not found") {
			t.Errorf("a request of a controller: %v", err)
		}
	}
}

// asking is an authorizer that tells what it is asked.
type asking struct {
	authorizer.Authorizer
	tell func(authorizer.Attributes)
}

func (a *asking) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.tell(attributes)
	return a.Authorizer.Authorize(ctx, attributes)
}

func (a *asking) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	a.tell(attributes)
	return a.Authorizer.ConditionsAwareAuthorize(ctx, attributes)
}

func TestUpstreamKnowsTheLimits(t *testing.T) {
	c := genericapiserver.NewConfig(apis.Codecs)
	limits := edge.Limits{RequestTimeout: time.Hour, RequestsInFlight: 1, MutatingRequestsInFlight: 2, GoawayChance: 0.01, HSTS: []string{"preload"}}
	limits.ApplyTo(c)
	got := edge.Limits{
		RequestTimeout: c.RequestTimeout, RequestsInFlight: c.MaxRequestsInFlight, MutatingRequestsInFlight: c.MaxMutatingRequestsInFlight,
		GoawayChance: c.GoawayChance, HSTS: c.HSTSDirectives,
	}
	if !reflect.DeepEqual(got, limits) {
		t.Errorf("got %+v, want %+v", got, limits)
	}
}

// A client that is told to connect anew costs a handshake, which is for load balancers to want and not for renewals.
func TestOnlyOthersAreToldToConnectAnew(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Limits.GoawayChance = 1
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	for bearer, want := range map[string]bool{r.server.identity.InProcess.Leader: true, "t-root": false} {
		var reused bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		for range 2 {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/clusters/system:admin/api/v1/namespaces", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+bearer)
			if got := r.do(t, req); got.status != http.StatusOK {
				t.Fatalf("%d: %s", got.status, got.body)
			}
		}
		if reused != want {
			t.Errorf("own %t: the connection was used again: %t", want, reused)
		}
		r.client.CloseIdleConnections()
	}
}

// trickle sends a request whose body never ends, a byte at a time, and returns when the server has closed the
// connection.
func trickle(t *testing.T, address string, patience time.Duration) (reply string, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			if _, err := conn.Write([]byte("1\r\nx\r\n")); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	answer, err := io.ReadAll(conn)
	_ = conn.Close()
	<-sent
	var netErr net.Error
	return string(answer), !errors.As(err, &netErr) || !netErr.Timeout()
}

func TestABodyThatNeverEndsEndsItsConnection(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused at once": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"read": func(w http.ResponseWriter, req *http.Request) {
			if _, err := io.Copy(io.Discard, req.Body); err == nil {
				t.Error("the body has ended")
			}
			w.WriteHeader(http.StatusRequestTimeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(connections.WithBodyDeadline(200*time.Millisecond, handler))
			defer server.Close()
			if answer, closed := trickle(t, server.Listener.Addr().String(), 20*time.Second); !closed {
				t.Errorf("the connection stays open; the answer is %q", answer)
			}
		})
	}
}

// A deadline that stayed would end the connection, and with it the request, of who has sent all.
func TestARequestMayTakeLongerThanItsBody(t *testing.T) {
	const deadline = 100 * time.Millisecond
	server := httptest.NewServer(connections.WithBodyDeadline(deadline, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-req.Context().Done():
			t.Error("the request was ended")
		case <-time.After(3 * deadline):
		}
		w.WriteHeader(http.StatusAccepted)
	})))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	for range 2 { // on the same connection
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("got %s", resp.Status)
		}
	}
}

// Each resource's storage says when a watch has begun: otherwise the places of requests would run out.
func TestWatchesThatHaveBegunTakeNoPlaces(t *testing.T) {
	r, _ := startAudited(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, resource := range []string{"api/v1/configmaps", "api/v1/events"} {
		for _, from := range []string{"", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
			for range 25 {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/clusters/system:admin/"+resource+"?watch=true"+from, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer t-root")
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s%s: %s", resource, from, resp.Status)
				}
				all.Go(func() {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				})
			}
		}
	}
	cancel()
	all.Wait()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
