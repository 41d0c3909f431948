package leader_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/leader"
)

// The limit of the program's own clients, and a queue in their connection, do not hold up a renewal.
func TestARenewalWaitsForNoOtherClient(t *testing.T) {
	s := newServer(t)
	s.config.QPS, s.config.Burst = 0.001, 1
	program, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	// takes the only place
	if _, err := program.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	var c terms
	l := s.newLeader(t)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	renewals := s.client.Count(electiontest.Update)
	eventually(t, "it renews", func() bool { return s.client.Count(electiontest.Update) > renewals+2 })
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	if s.config.QPS != 0.001 || s.config.Dial != nil || s.config.WrapTransport != nil {
		t.Error("the program's configuration was changed")
	}
}

// hole is a dialer whose connections can become black holes: what is sent on them arrives nowhere.
type hole struct {
	dials  atomic.Int32
	closed atomic.Bool
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	h.dials.Add(1)
	return &holed{Conn: conn, of: h, swallows: &atomic.Bool{}}, err
}

type holed struct {
	net.Conn
	of       *hole
	swallows *atomic.Bool
}

func (c *holed) Write(b []byte) (int, error) {
	if c.of.closed.CompareAndSwap(true, false) {
		c.swallows.Store(true)
	}
	if c.swallows.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// When a renewal gets no answer, the next takes another connection, in time for the term to go on.
func TestAConnectionWithoutAnswersIsGivenUp(t *testing.T) {
	s := newServer(t)
	way := &hole{}
	s.config.Dial = way.dial
	var c terms
	l := s.newLeader(t, func(cfg *leader.Config) {
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.DrainTimeout = 10*time.Second, 6*time.Second, 200*time.Millisecond, time.Second
	})
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	way.closed.Store(true)
	eventually(t, "a request is swallowed", func() bool { return !way.closed.Load() })
	dials, renewals := way.dials.Load(), s.client.Count(electiontest.Update)
	eventually(t, "it renews on another connection", func() bool {
		return way.dials.Load() > dials && s.client.Count(electiontest.Update) > renewals+2
	})
	if c.mu.Lock(); c.began != 1 || c.ended != 0 {
		t.Errorf("%d terms began, %d ended", c.began, c.ended)
	}
	c.mu.Unlock()
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

// roundTripper is a http.RoundTripper of one function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A program may bring a transport of its own, as one that calls a handler in the process.
func TestATransportOfTheProgramIsUsed(t *testing.T) {
	s := newServer(t)
	used := atomic.Int32{}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s.config.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
		used.Add(1)
		return transport.RoundTrip(req)
	})
	var c terms
	l := s.newLeader(t)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	if err := l.Stop(); err != nil || used.Load() == 0 {
		t.Errorf("%v, used %d times", err, used.Load())
	}
}

// Where the server checks tokens, each request of a term's clients and each renewal carries the term's, and a refusal
// ends the term.
func TestATermsClientsCarryItsTokenAndARefusalEndsIt(t *testing.T) {
	s := newServer(t)
	s.store.Fence()
	var sent atomic.Pointer[string]
	work := rest.CopyConfig(s.config)
	work.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			header := req.Header.Get(fence.Header)
			sent.Store(&header)
			answer := httptest.NewRecorder()
			answer.Header().Set("Content-Type", "application/json")
			answer.WriteHeader(http.StatusPreconditionFailed)
			_, _ = answer.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"LeaderFenced","code":412}`)
			return answer.Result(), nil
		})
	})
	l := s.newLeader(t, func(cfg *leader.Config) { cfg.Fenced, cfg.Cluster = true, "root" })
	ended := make(chan error, 1)
	var first atomic.Bool
	err := l.Start(t.Context(), func(ctx context.Context, term election.Term) error {
		if first.Swap(true) { // Stop may end this term before anything is sent in it
			<-ctx.Done()
			return nil
		}
		client, err := kubernetes.NewForConfig(leader.ForTerm(ctx, work, term))
		if err != nil {
			return err
		}
		_, _ = client.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{}, metav1.CreateOptions{})
		<-ctx.Done()
		value, err := term.Token().HeaderValue()
		if got := sent.Load(); err != nil || got == nil || *got != value {
			t.Errorf("sent %v, want %q (%v)", got, value, err)
		}
		ended <- context.Cause(ctx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if cause := <-ended; !errors.Is(cause, election.Fenced) {
		t.Errorf("the term ended because %v", cause)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}
