package election_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// Without -v nothing is logged: go test would show the log lines of all tests with the failure of one. They are
// formatted, so that the race detector sees what they read.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const (
	leaseName = "test-controllers"
	lease     = 15 * time.Second
	renew     = 10 * time.Second
	retry     = 2 * time.Second
	drain     = 5 * time.Second
	// moment is longer than the elector takes for anything for which it need not wait.
	moment = 100 * time.Millisecond
)

// errRefused is an answer that proves nothing about the write.
var errRefused = apierrors.NewServiceUnavailable("refused by the test")

// errDone ends a replica's Run in tests.
var errDone = errors.New("test is done")

// replica is one Elector under test, with a record of its terms.
type replica struct {
	t       *testing.T
	client  *electiontest.Client
	elector *election.Elector
	cancel  context.CancelCauseFunc
	result  chan error // capacity 1
	log     *record    // nil: it logs where all do

	mu    sync.Mutex
	terms []*term
}

// term is the record of one call of the LeadFunc.
type term struct {
	election.Term
	began, ended, joined time.Time
	cause                error
}

// newConfig returns a candidate's configuration with the default timings.
func newConfig(client election.LeaseClient) election.Config {
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "kube-system", leaseName
	cfg.Replica, cfg.Client, cfg.Cluster = "host", client, "system:admin"
	return cfg
}

// start runs a replica on the store. work is the work of its terms; nil: they wait until their context ends.
func start(t *testing.T, store *electiontest.Store, work election.LeadFunc, change ...func(*election.Config)) *replica {
	t.Helper()
	return startAs(&replica{t: t}, store, work, change...)
}

// startLogged does what start does, and keeps what the replica logs.
func startLogged(t *testing.T, store *electiontest.Store, work election.LeadFunc, change ...func(*election.Config)) *replica {
	t.Helper()
	return startAs(&replica{t: t, log: &record{}}, store, work, change...)
}

func startAs(r *replica, store *electiontest.Store, work election.LeadFunc, change ...func(*election.Config)) *replica {
	t := r.t
	t.Helper()
	r.client, r.result = store.Client(), make(chan error, 1)
	cfg := newConfig(r.client)
	cfg.Candidates = r.client.Candidates()
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Mode == (election.Coordinated{}) {
		cfg.Mode = election.Coordinated{BinaryVersion: "1.0.0", EmulationVersion: "1.0.0"}
	}
	if cfg.Mode.Electing() {
		go store.Elect(t.Context())
	}
	r.begin(election.New, cfg, work)
	return r
}

// startUnelected runs a replica that leads without election.
func startUnelected(t *testing.T, store *electiontest.Store, change ...func(*election.Config)) *replica {
	t.Helper()
	r := &replica{t: t, client: store.Client(), result: make(chan error, 1)}
	cfg := newConfig(r.client)
	for _, c := range change {
		c(&cfg)
	}
	r.begin(election.NewUnelected, cfg, nil)
	return r
}

// begin makes the Elector and runs it.
func (r *replica) begin(make func(election.Config) (*election.Elector, error), cfg election.Config, work election.LeadFunc) {
	r.t.Helper()
	elector, err := make(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.elector = elector
	r.run(work)
}

// run calls Run, the first time or again after stop.
func (r *replica) run(work election.LeadFunc) {
	if work == nil {
		work = func(ctx context.Context, _ election.Term) error { <-ctx.Done(); return nil }
	}
	ctx, cancel := context.WithCancelCause(r.log.in(r.t.Context()))
	r.cancel = cancel
	go func() {
		r.result <- r.elector.Run(ctx, func(ctx context.Context, leads election.Term) error { return r.lead(ctx, leads, work) })
	}()
}

func (r *replica) lead(ctx context.Context, leads election.Term, work election.LeadFunc) error {
	record := &term{Term: leads, began: time.Now()}
	r.mu.Lock()
	r.terms = append(r.terms, record)
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		record.ended, record.cause = time.Now(), context.Cause(ctx)
	})
	defer func() {
		stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		record.joined = time.Now()
		if ctx.Err() != nil && record.cause == nil {
			record.ended, record.cause = record.joined, context.Cause(ctx)
		}
	}()
	return work(ctx, leads)
}

// all returns copies of the records of all terms so far.
func (r *replica) all() []term {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	terms := make([]term, len(r.terms))
	for i, t := range r.terms {
		terms[i] = *t
	}
	return terms
}

// leading returns the term whose work is running, if any.
func (r *replica) leading() (term, bool) {
	terms := r.all()
	if len(terms) == 0 || !terms[len(terms)-1].joined.IsZero() {
		return term{}, false
	}
	return terms[len(terms)-1], true
}

// mustLead waits for a moment and returns the term in which the replica then leads.
func (r *replica) mustLead() term {
	r.t.Helper()
	time.Sleep(moment)
	leads, ok := r.leading()
	if !ok {
		r.t.Fatalf("does not lead after a moment; terms so far: %v", r.all())
	}
	return leads
}

// mustEnd returns the record of the n-th term, which must have ended for cause.
func (r *replica) mustEnd(n int, cause election.Cause) term {
	r.t.Helper()
	terms := r.all()
	if len(terms) <= n || terms[n].ended.IsZero() {
		r.t.Fatalf("term %d has not ended; terms so far: %v", n, terms)
	}
	if !errors.Is(terms[n].cause, cause) {
		r.t.Fatalf("term %d ended because %v, want %v", n, terms[n].cause, cause)
	}
	return terms[n]
}

// stop ends Run and returns when it has returned; Run must return ctx's cause.
func (r *replica) stop() {
	r.t.Helper()
	r.cancel(errDone)
	if err := <-r.result; err != errDone {
		r.t.Errorf("Run returned %v, want its context's cause", err)
	}
}

// gauge reads leader_election_master_status as /metrics would show it.
func gauge(t *testing.T) float64 {
	t.Helper()
	return metric(t, "leader_election_master_status")
}

// metric reads a gauge of the lease as /metrics would show it.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	return seriestest.Value(t, name, leaseName)
}
