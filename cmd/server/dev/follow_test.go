package dev

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// fakeReplica answers what a replica would.
type fakeReplica struct {
	*child
	mu        sync.Mutex
	is        status.Replica
	terms     []status.Term
	questions int
}

// isAsked waits until the replica was asked twice: after that its last but one answer has had its effect.
func (f *fakeReplica) isAsked(t *testing.T) {
	t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.questions
	}
	before := count()
	for deadline := time.Now().Add(30 * time.Second); count() < before+2; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not asked", f.name)
		}
	}
}

// says sets what the replica answers from now on.
func (f *fakeReplica) says(e status.Election, terms ...status.Term) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.is.Election, f.terms = e, terms
}

func (f *fakeReplica) answer(path string) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch path {
	case status.ReplicaPath:
		f.questions++
		return f.is
	case status.TermsPath:
		return status.Terms{Shard: "root", Terms: f.terms}
	}
	return nil
}

// newFollowed returns a system of one shard with some replicas, each of which is followed until the test ends.
func newFollowed(t *testing.T, names ...string) (*terminal, *system, []*fakeReplica) {
	t.Helper()
	shown := &terminal{}
	out := &output{to: shown}
	s := &system{out: out, shards: []*shard{{name: "root", out: out}}}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	var fakes []*fakeReplica
	for n, name := range names {
		f := &fakeReplica{child: &child{name: name, pid: 41 + n}}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_ = json.NewEncoder(w).Encode(f.answer(req.URL.Path))
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
		server.StartTLS()
		t.Cleanup(server.Close)
		f.url, s.client = server.URL, server.Client() // all test servers have one certificate
		fakes = append(fakes, f)
		s.shards[0].children = append(s.shards[0].children, f.child)
	}
	for _, f := range fakes {
		f.says(status.Election{State: "standing by"})
		following.Go(func() { s.follow(ctx, s.shards[0], f.child) })
	}
	t.Cleanup(func() {
		cancel()
		following.Wait()
		s.client.CloseIdleConnections()
	})
	return shown, s, fakes
}

var began = time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)

// leadsIn is the election of a replica that leads in a term.
func leadsIn(epoch int64, trigger string) status.Election {
	return status.Election{State: status.StateLeading, Epoch: epoch, Trigger: trigger, Since: began.Add(time.Duration(epoch) * time.Minute)}
}

func TestThatLeadershipMovedIsSaidAndThenForHowLongNobodyLedAndWhy(t *testing.T) {
	shown, s, fakes := newFollowed(t, "replica-0", "replica-1")
	a, b := fakes[0], fakes[1]
	standsBy := status.Election{State: "standing by", Epoch: 1}
	b.says(standsBy)
	a.says(leadsIn(1, "none"), status.Term{Epoch: 1, Trigger: "none", Phases: map[string]float64{}})
	shown.shows(t, "dev | replica-0 leads shard root, epoch 1. To kill it: kill -9 41\n")
	if leader, epoch := s.shards[0].leading(); leader != a.child || epoch != 1 {
		t.Errorf("%v leads, epoch %d", leader, epoch)
	}

	b.says(leadsIn(2, "release"), status.Term{Epoch: 2, Trigger: "release"}) // a does not know yet
	shown.shows(t, "dev | replica-1 leads shard root, epoch 2. To kill it: kill -9 42\n")
	b.says(leadsIn(2, "release"), status.Term{Epoch: 2, Trigger: "release", Gap: 0.0123, Phases: map[string]float64{"acquire": 0.003}},
		status.Term{Epoch: 1, EndReason: "step down: on request:\n'a test'"})
	shown.shows(t, "dev | Nobody led shard root for 12ms: the previous leader gave the lease up (step down: on request: 'a test')\n")

	a.says(leadsIn(1, "none")) // it was paused
	a.isAsked(t)
	a.says(leadsIn(3, "")) // the Lease shows another one's term
	a.isAsked(t)
	b.isAsked(t)
	if all := shown.String(); strings.Count(all, " leads ") != 2 || strings.Count(all, "Nobody led") != 1 {
		t.Errorf("it says something twice, or what is over:\n%s", all)
	}
}

func TestAReplicaWhoseProcessHasEndedIsNotAsked(t *testing.T) {
	shown, _, fakes := newFollowed(t, "replica-0", "replica-1")
	fakes[0].set(0)
	fakes[0].says(leadsIn(1, "none"))
	for range 3 {
		fakes[1].isAsked(t)
	}
	if got := shown.String(); got != "" {
		t.Errorf("it says %q", got)
	}
	fakes[0].set(43)
	shown.shows(t, "kill -9 43\n")
}
