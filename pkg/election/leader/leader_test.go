package leader_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/leader"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const leaseName = "example"

// server is an API server with one Lease and Secrets.
type server struct {
	store   *electiontest.Store
	client  *electiontest.Client
	secrets *secrets
	config  *rest.Config
}

func newServer(t *testing.T) *server {
	t.Helper()
	store := electiontest.NewStore(leaseName)
	s := &server{store: store, client: store.Client(), secrets: &secrets{stored: map[string][]byte{}}}
	mux := http.NewServeMux()
	mux.Handle(electiontest.LeasesPath, electiontest.Handler(s.client))
	mux.Handle("/api/v1/namespaces/default/secrets", s.secrets)
	mux.Handle("/api/v1/namespaces/default/secrets/", s.secrets)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	s.config = &rest.Config{Host: web.URL}
	return s
}

// config is that of a replica with a probe.
func config() leader.Config {
	return leader.Config{
		Namespace: "default", Name: leaseName, SecretName: "example-probe", AdvertiseAddress: "127.0.0.1",
		LeaseDuration: 10 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 500 * time.Millisecond,
	}
}

// newLeader returns a Leader of a replica on the server.
func (s *server) newLeader(t *testing.T, change ...func(*leader.Config)) *leader.Leader {
	t.Helper()
	cfg := config()
	for _, c := range change {
		c(&cfg)
	}
	l, err := leader.New(s.config, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// terms counts the terms of a replica.
type terms struct {
	mu           sync.Mutex
	began, ended int
	last         election.Term
}

func (c *terms) lead(ctx context.Context, term election.Term) error {
	c.mu.Lock()
	c.began, c.last = c.began+1, term
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ended++
	c.mu.Unlock()
	return nil
}

func (c *terms) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began > c.ended
}

func TestAStandbyLeadsWhenTheLeaderStopsAndTheLeaseIsFreeAfterTheLast(t *testing.T) {
	s := newServer(t)
	var one, other terms
	a, b := s.newLeader(t), s.newLeader(t)
	if err := a.Start(t.Context(), one.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first leads", one.leads)
	if err := b.Start(t.Context(), other.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second follows the first's probe", func() bool { return len(a.Elector().Status().Standbys) == 1 })
	at := time.Now()
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if one.leads() {
		t.Error("its work goes on after Stop")
	}
	eventually(t, "the second leads", other.leads)
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("nobody led for %v", took)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if holder := s.store.Holder(); holder != "" {
		t.Errorf("after the end %q holds the lease", holder)
	}
}

// Replicas that start at once make one secret: one of them follows the other, which shows that both know the same.
func TestReplicasAgreeOnASecretAlthoughBothMakeOne(t *testing.T) {
	s := newServer(t)
	s.secrets.together(2)
	var one, other terms
	a, b := s.newLeader(t), s.newLeader(t)
	for l, c := range map[*leader.Leader]*terms{a: &one, b: &other} {
		if err := l.Start(t.Context(), c.lead); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one leads, and the other follows it", func() bool {
		return len(a.Elector().Status().Standbys)+len(b.Elector().Status().Standbys) == 1
	})
	if creates := s.secrets.count(http.MethodPost); creates != 2 {
		t.Errorf("%d replicas tried to create the Secret, want both", creates)
	}
	for _, l := range []*leader.Leader{a, b} {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestStopMayComeAtAnyTimeAndAgain(t *testing.T) {
	t.Run("before Start", func(t *testing.T) {
		var c terms
		l := newServer(t).newLeader(t)
		if err := errors.Join(l.Stop(), l.Stop(), l.Start(t.Context(), c.lead), l.Stop()); err != nil {
			t.Error(err)
		}
		if l.Done() != nil || c.began != 0 {
			t.Error("it began after Stop")
		}
	})
	t.Run("by several", func(t *testing.T) {
		var c terms
		l := newServer(t).newLeader(t)
		if err := l.Start(t.Context(), c.lead); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it leads", c.leads)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := l.Stop(); err != nil {
					t.Error(err)
				}
				if c.leads() {
					t.Error("the work goes on after Stop")
				}
			})
		}
		all.Wait()
	})
	t.Run("before the server answers", func(t *testing.T) {
		var c terms
		s := newServer(t)
		s.config.Host = "http://127.0.0.1:1" // nobody is there
		l := s.newLeader(t)
		if err := l.Start(t.Context(), c.lead); err != nil {
			t.Fatal(err)
		}
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("while it gets ready", func(t *testing.T) {
		var c terms
		waits := make(chan struct{})
		l := newServer(t).newLeader(t, func(cfg *leader.Config) {
			cfg.Ready = func(ctx context.Context) error { close(waits); <-ctx.Done(); return ctx.Err() }
		})
		if err := l.Start(t.Context(), c.lead); err != nil {
			t.Fatal(err)
		}
		<-waits
		if err := l.Stop(); err != nil || c.began != 0 {
			t.Errorf("%v, %d terms", err, c.began)
		}
	})
}

func TestALeaderStartsOnce(t *testing.T) {
	var c terms
	l := newServer(t).newLeader(t)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context(), c.lead); err == nil {
		t.Error("a second Start is no error")
	}
	if err := l.Run(t.Context(), c.lead); err == nil {
		t.Error("Run beside Start is no error")
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

// The context of a hook may end at any time: the term goes on until Stop.
func TestTheEndOfStartsContextEndsNothing(t *testing.T) {
	var c terms
	s := newServer(t)
	l := s.newLeader(t)
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.Start(ctx, c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	cancel()
	renewals := s.client.Count(electiontest.Update)
	eventually(t, "it renews", func() bool { return s.client.Count(electiontest.Update) > renewals+1 })
	if !c.leads() {
		t.Error("the term has ended")
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

func TestRunReturnsWhatEndedIt(t *testing.T) {
	errDone, errBroken := errors.New("done"), errors.New("broken")
	for name, test := range map[string]struct {
		change func(*leader.Config)
		lead   election.LeadFunc
		want   error
	}{
		"its context":       {want: errDone},
		"the work wants it": {lead: func(context.Context, election.Term) error { return election.ErrExit }, want: election.ErrExit},
		"it is not ready": {
			change: func(cfg *leader.Config) { cfg.Ready = func(context.Context) error { return errBroken } }, want: errBroken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			lead := test.lead
			if lead == nil {
				lead = func(ctx context.Context, _ election.Term) error { cancel(errDone); <-ctx.Done(); return nil }
			}
			if test.change == nil {
				test.change = func(*leader.Config) {}
			}
			if err := newServer(t).newLeader(t, test.change).Run(ctx, lead); !errors.Is(err, test.want) {
				t.Errorf("Run returned %v, want %v", err, test.want)
			}
		})
	}
}

// If the work asks to exit, whoever started it learns why.
func TestAnElectionThatEndsByItselfIsTold(t *testing.T) {
	l := newServer(t).newLeader(t)
	if err := l.Start(t.Context(), func(context.Context, election.Term) error { return election.ErrExit }); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	if err := l.Stop(); !errors.Is(err, election.ErrExit) {
		t.Errorf("Stop returned %v", err)
	}
}

func TestWorkThatDoesNotStopIsTold(t *testing.T) {
	release := make(chan struct{})
	l := newServer(t).newLeader(t, func(cfg *leader.Config) {
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.DrainTimeout = 2*time.Second, time.Second, 100*time.Millisecond, 100*time.Millisecond
	})
	leads := make(chan struct{})
	if err := l.Start(t.Context(), func(context.Context, election.Term) error { close(leads); <-release; return nil }); err != nil {
		t.Fatal(err)
	}
	<-leads
	if err := l.Stop(); err == nil || !strings.Contains(err.Error(), "has not stopped") {
		t.Errorf("Stop returned %v", err)
	}
	close(release)
	<-l.Done()
	if err := l.Stop(); err != nil {
		t.Errorf("after the work has stopped, Stop returned %v", err)
	}
}

// Without a secret there is no probe, and everything else works.
func TestWithoutASecretAReplicaLeads(t *testing.T) {
	var c terms
	s := newServer(t)
	l := s.newLeader(t, func(cfg *leader.Config) { cfg.SecretName = "" })
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	if said := s.store.Lease().Annotations["regent.dev/presence"]; strings.Contains(said, "probe") {
		t.Errorf("the Lease says %s", said)
	}
	if err := l.Stop(); err != nil || s.secrets.count("") != 0 {
		t.Errorf("%v, %d requests for Secrets", err, s.secrets.count(""))
	}
}
