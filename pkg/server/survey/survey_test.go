package survey

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is an installation with shard root, whose replicas the test plays.
type house struct {
	*testing.T
	bundle    *pki.Bundle
	authority *pki.Authority
}

func newHouse(t *testing.T) *house {
	t.Helper()
	bundle, err := pki.Ensure(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t, bundle, nil}
	h.authority = h.of("root")
	return h
}

// of returns a new authority of a shard.
func (h *house) of(shard string) *pki.Authority {
	h.Helper()
	certPEM, keyPEM, err := h.bundle.NewAuthority(pki.Member{Kind: pki.KindShard, Name: shard})
	if err != nil {
		h.Fatal(err)
	}
	authority, err := pki.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		h.Fatal(err)
	}
	return authority
}

// serve plays a replica, and returns its URL.
func (h *house) serve(authority *pki.Authority, handler http.HandlerFunc) string {
	h.Helper()
	certPEM, keyPEM, err := authority.Serve(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		h.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		h.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	h.Cleanup(server.Close)
	return server.URL
}

// answerWith answers with a Replica.
func answerWith(r status.Replica) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != status.ReplicaPath {
			http.Error(w, "asked for "+req.URL.Path, http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(r)
	}
}

func follower(name, leader string) status.Replica {
	return status.Replica{Shard: "root", Name: name, Version: "v1", Election: status.Election{State: "standing by", Epoch: 7, Leader: leader}}
}

// survey returns a Survey of a replica of shard root. patient is the patience of tests: whoever answers does so within
// it, on a busy machine too. Tests of those that never do have brief.
var (
	patient = patience{whole: 40 * time.Second, shard: 20 * time.Second, other: 30 * time.Second, leave: 20 * time.Second}
	brief   = patience{whole: 6 * time.Second, shard: 3 * time.Second, other: 4 * time.Second}
)

func (h *house) survey(self status.Replica, change ...func(*Config)) *Survey {
	h.Helper()
	cfg := Config{
		Name: "root", Root: "root", Replica: func(context.Context) status.Replica { return self }, Outline: func() status.Replica { return self },
		Shard:     func() status.Shard { return status.Shard{Clusters: 3, Capacity: 10} },
		Keys:      func() ([]byte, *pki.Authority) { return h.bundle.CAPEM, h.authority },
		Authority: func() string { return "" },
		Others:    func() []string { return nil },
		Leaves:    func() bool { return false },
		Terms: func(context.Context) (status.Terms, error) {
			return status.Terms{Shard: "root", Terms: make([]status.Term, 2*latest)}, nil
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	s := New(cfg)
	s.patience = patient
	h.Cleanup(s.lines.close)
	return s
}

func TestAShardComesWithItsLatestTerms(t *testing.T) {
	if got := newHouse(t).survey(status.Replica{Shard: "root", Name: "self"}).Shard(t.Context()); len(got.Terms) != latest {
		t.Errorf("%d terms, want %d", len(got.Terms), latest)
	}
}

// faults returns the Fault of each replica, by name.
func faults(s status.Shard) map[string]string {
	out := map[string]string{}
	for _, r := range s.Replicas {
		out[r.Name] = r.Fault
	}
	return out
}

func TestAStandbyFindsTheLeadersOtherStandbys(t *testing.T) {
	h := newHouse(t)
	other := h.serve(h.authority, answerWith(follower("other", "leader")))
	leads := status.Replica{Shard: "root", Name: "leader", Election: status.Election{State: "leading", Epoch: 7, Leader: "leader", Standbys: []status.Standby{
		{Replica: "self", URL: "https://127.0.0.1:1"}, {Replica: "other", URL: other}, {Replica: "old"},
	}}}
	self := follower("self", "leader")
	self.Election.LeaderURL = h.serve(h.authority, answerWith(leads))
	got := h.survey(self).Shard(t.Context())
	faultOf := faults(got)
	if got.Name != "root" || got.Leader != "leader" || got.Clusters != 3 || len(faultOf) != 4 || faultOf["self"]+faultOf["leader"]+faultOf["other"] != "" || !strings.Contains(faultOf["old"], "older version") {
		t.Errorf("%+v", got)
	}
	for _, r := range got.Replicas {
		if want := map[string]string{"other": other, "leader": self.Election.LeaderURL}[r.Name]; r.URL != want {
			t.Errorf("%s is at %q, want %q", r.Name, r.URL, want)
		}
	}
}

// Whoever hangs, lies or is gone costs its own place in the answer only.
func TestAReplicaThatDoesNotAnswerWellHasAFault(t *testing.T) {
	h := newHouse(t)
	wake := make(chan struct{})
	hangs := func(http.ResponseWriter, *http.Request) { <-wake }
	another := follower("bad", "")
	another.Shard = "eu1"
	bad := map[string]struct{ url, says string }{
		"is gone":             {"https://127.0.0.1:1", "refused"},
		"hangs":               {h.serve(h.authority, hangs), "has not answered"},
		"is another shard's":  {h.serve(h.of("eu1"), answerWith(follower("bad", ""))), "shard eu1 answers"},
		"says it is another":  {h.serve(h.authority, answerWith(another)), `of shard "eu1"`},
		"has no name":         {h.serve(h.authority, answerWith(status.Replica{Shard: "root"})), `replica ""`},
		"refuses":             {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }), "older version"},
		"fails":               {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), "500"},
		"says something else": {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }), "understood"},
		"says too much": {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"shard":"root","name":"bad","version":"` + strings.Repeat("x", maxAnswer) + `"}`))
		}), "more than"},
		"has no address":     {"https://", "faulty URL"},
		"has another scheme": {"http://127.0.0.1:1", "faulty URL"},
	}
	defer close(wake)
	good := h.serve(h.authority, answerWith(follower("good", "")))
	for name, test := range bad {
		t.Run(name, func(t *testing.T) {
			self := status.Replica{Shard: "root", Name: "self", Election: status.Election{State: "leading", Epoch: 7, Leader: "self", Standbys: []status.Standby{{Replica: "bad", URL: test.url}, {Replica: "good", URL: good}}}}
			s := h.survey(self)
			if name == "hangs" {
				s.patience = brief
			}
			began := time.Now()
			got := faults(s.Shard(t.Context()))
			if took := time.Since(began); took > s.patience.whole {
				t.Errorf("it took %v", took)
			}
			if len(got) != 3 || got["self"]+got["good"] != "" || !strings.Contains(got["bad"], test.says) {
				t.Errorf("%+v; want a fault with %q", got, test.says)
			}
		})
	}
}

func TestWithoutAKeyNobodyIsAsked(t *testing.T) {
	h := newHouse(t)
	self := follower("self", "leader")
	self.Election.LeaderURL = h.serve(h.authority, func(http.ResponseWriter, *http.Request) { t.Error("somebody was asked") })
	got := faults(h.survey(self, func(c *Config) { c.Keys = func() ([]byte, *pki.Authority) { return nil, nil } }).Shard(t.Context()))
	if len(got) != 2 || got["self"] != "" || !strings.Contains(got["leader"], "the key") {
		t.Errorf("%+v", got)
	}
}

// A replica that starts anew at the address of an old one takes its place, but a leader that the Lease still shows is
// told of.
func TestAReplicaTakesThePlaceOfTheOneThatHadItsAddress(t *testing.T) {
	h := newHouse(t)
	url := h.serve(h.authority, answerWith(follower("new", "self")))
	for name, test := range map[string]struct {
		self status.Replica
		want string
	}{
		"a standby": {status.Replica{Shard: "root", Name: "self", Election: status.Election{Leader: "self", Standbys: []status.Standby{{Replica: "old", URL: url}}}}, "map[new: self:]"},
		"a leader":  {status.Replica{Shard: "root", Name: "self", Election: status.Election{Leader: "old", LeaderURL: url}}, "map[new: old:replica new answers at its address self:]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(faults(h.survey(test.self).Shard(t.Context()))); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// After a roll nobody has the addresses of the old replicas, and on many networks nobody refuses connections there.
func TestOldReplicasThatHangDoNotHoldUpTheAnswer(t *testing.T) {
	h := newHouse(t)
	wake := make(chan struct{})
	defer close(wake)
	hangs := h.serve(h.authority, func(http.ResponseWriter, *http.Request) { <-wake })
	good := h.serve(h.authority, answerWith(follower("good", "")))
	self := status.Replica{Shard: "root", Name: "self", Election: status.Election{Leader: "self", Standbys: []status.Standby{{Replica: "good", URL: good}}}}
	s := h.survey(self)
	var old []status.Standby
	for n := range 2 * mostAtOnce {
		old = append(old, status.Standby{Replica: fmt.Sprint("old", n), URL: hangs})
	}
	s.roster.note(time.Now().Add(-time.Minute), status.Replica{Name: "self", Election: status.Election{Standbys: old}})
	began := time.Now()
	got := s.Shard(t.Context())
	if took := time.Since(began); took > s.patience.whole {
		t.Errorf("it took %v", took)
	}
	faultOf := faults(got)
	faulty := 0
	for _, fault := range faultOf {
		if strings.Contains(fault, "within 250ms") || strings.Contains(fault, "no time") {
			faulty++
		}
	}
	if len(faultOf) != 2+len(old) || faultOf["good"]+faultOf["self"] != "" || faulty != len(old) {
		t.Errorf("%+v", faultOf)
	}
}

func TestWhoWasKnownIsRememberedForSomeTime(t *testing.T) {
	var r roster
	now := time.Now()
	r.note(now, status.Replica{Name: "self", Election: status.Election{Leader: "killed", LeaderURL: "https://killed", Standbys: []status.Standby{{Replica: "self"}}}})
	alone := status.Replica{Name: "self", Election: status.Election{Leader: "self"}}
	r.note(now.Add(memory-time.Second), alone)
	if got := r.list(); len(got) != 1 || got[0].name != "killed" || got[0].url != "https://killed" {
		t.Errorf("remembered: %+v", got)
	}
	r.note(now.Add(memory+time.Second), alone)
	if got := r.list(); len(got) != 0 {
		t.Errorf("remembered for ever: %+v", got)
	}
	many := status.Replica{Name: "self"}
	for n := range 2 * mostReplicas {
		many.Election.Standbys = append(many.Election.Standbys, status.Standby{Replica: fmt.Sprint(n)})
	}
	r.note(now, many)
	if got := len(r.list()); got != mostReplicas {
		t.Errorf("%d are remembered", got)
	}
}

// Whoever is known for a moment only is remembered: a change is looked at when it comes, and otherwise every few
// seconds.
func TestRunRemembersWhomTheReplicaKnowsAndEnds(t *testing.T) {
	h := newHouse(t)
	for name, changed := range map[string]chan struct{}{"a change": make(chan struct{}, 1), "the next look": nil} {
		t.Run(name, func(t *testing.T) {
			looked := make(chan struct{})
			s := h.survey(status.Replica{}, func(c *Config) {
				c.Changes = changed
				c.Outline = func() status.Replica {
					select {
					case looked <- struct{}{}:
					case <-time.After(10 * time.Second):
					}
					return follower("self", "leader")
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); s.Run(ctx) }()
			began := time.Now()
			if changed != nil {
				changed <- struct{}{}
			}
			<-looked
			if took := time.Since(began); changed != nil && took >= lookEvery {
				t.Errorf("it looked after %v", took)
			}
			cancel()
			<-ended
			if got := s.roster.list(); len(got) != 1 || got[0].name != "leader" {
				t.Errorf("it remembers %+v", got)
			}
			if _, err := s.lines.to("https://127.0.0.1:1"); err == nil {
				t.Error("it asks after its end")
			}
		})
	}
}

// What a shard says of others, or of itself as another one, does not count.
func TestAnInstallationIsWhatEachShardSaysOfItself(t *testing.T) {
	h := newHouse(t)
	heardAt := time.Now().Add(-time.Minute)
	answers := map[string]func() ([]byte, error){
		"eu1": func() ([]byte, error) {
			return json.Marshal(status.Shard{Name: "eu1", Leader: "a", Fault: "none", Replicas: []status.Replica{{Shard: "root", Name: "a", Fronts: []status.Front{
				{Name: "f", Heard: heardAt}, {Name: "a-stranger", Heard: heardAt}, {Name: "early", Heard: time.Now().Add(time.Hour)},
			}}}})
		},
		"liar": func() ([]byte, error) { return json.Marshal(status.Shard{Name: "root", Leader: "liar"}) },
		"lost": func() ([]byte, error) { return nil, errors.New("nobody\nanswers") },
		"odd":  func() ([]byte, error) { return []byte("[]"), nil },
	}
	self := status.Replica{Shard: "root", Name: "self", Election: status.Election{Leader: "self"}, Fronts: []status.Front{{Name: "early"}, {Name: "f", Heard: heardAt.Add(-time.Hour)}}}
	s := h.survey(self, func(c *Config) {
		c.Others = func() []string { return []string{"odd", "liar", "eu1", "lost"} }
		c.Ask = func(_ context.Context, shard, path string, _ time.Duration, _ int64) ([]byte, error) {
			if path != status.ShardPath {
				t.Errorf("%s is asked for %s", shard, path)
			}
			return answers[shard]()
		}
		c.Diagnose = func(of status.Installation, now time.Time) []status.Problem {
			if !now.Equal(of.Observed) {
				t.Error("the diagnosis is of another time")
			}
			return []status.Problem{{What: fmt.Sprint(len(of.Shards))}}
		}
	})
	got := s.Installation(t.Context())
	var told []string
	for _, shard := range got.Shards {
		told = append(told, shard.Name+": "+shard.Leader+shard.Fault)
		for _, r := range shard.Replicas {
			if r.Shard != shard.Name {
				t.Errorf("%s has a replica of %s", shard.Name, r.Shard)
			}
		}
	}
	want := "eu1: a|liar: it answers as shard \"root\"|lost: nobody answers|odd: json: cannot unmarshal array into Go value of type status.Shard|root: self"
	if got.By != "self" || got.Root != "root" || len(got.Problems) != 1 || got.Problems[0].What != "5" || strings.Join(told, "|") != want {
		t.Errorf("%+v; it tells %q, want %q", got, told, want)
	}
	if f := got.Fronts; len(f) != 2 || f[0].Name != "early" || !f[0].Heard.Equal(got.Observed) || f[1].Name != "f" || !f[1].Heard.Equal(heardAt) || !self.Fronts[0].Heard.IsZero() {
		t.Errorf("the fronts are %+v: want those that this replica knows, and when any replica heard them", f)
	}
}

func TestManyWhoAskCostOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer cache[int]
		var asked atomic.Int32
		begun, wake := make(chan struct{}), make(chan struct{})
		question := func(ctx context.Context) int {
			n := asked.Add(1)
			if n == 1 {
				close(begun)
				<-wake
			}
			if ctx.Err() != nil {
				t.Error("the question ends with whoever asked first")
			}
			return int(n)
		}
		first, gone := context.WithCancel(t.Context())
		var all sync.WaitGroup
		got := make([]int, 10)
		all.Go(func() { got[0] = answer.get(first, time.Minute, "", question) })
		<-begun
		gone()
		for n := range 9 {
			all.Go(func() { got[n+1] = answer.get(t.Context(), time.Minute, "", question) })
		}
		synctest.Wait() // until all wait for the answer
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if got := answer.get(impatient, time.Minute, "", question); got != 0 {
			t.Errorf("who has gone away gets %d", got)
		}
		close(wake)
		all.Wait()
		if fmt.Sprint(got) != "[1 1 1 1 1 1 1 1 1 1]" {
			t.Errorf("asked %d times: %v", asked.Load(), got)
		}
		for answer.get(t.Context(), time.Minute, "", question) == 1 { // until it is not fresh
			<-time.After(fresh / 10)
		}
	})
}

func TestAQuestionThatPanicsDoesNotBlockTheNext(t *testing.T) {
	var answer cache[int]
	func() {
		defer func() { _ = recover() }()
		answer.get(t.Context(), time.Minute, "", func(context.Context) int { panic("oh") })
	}()
	if got := answer.get(t.Context(), time.Minute, "", func(context.Context) int { return 5 }); got != 5 {
		t.Errorf("the next gets %d", got)
	}
}

func TestAnAnswerAboutTheLeaderBeforeIsNotFresh(t *testing.T) {
	var answer cache[string]
	of := func(leader string) string {
		return answer.get(t.Context(), time.Minute, leader, func(context.Context) string { return leader + " leads" })
	}
	for _, leader := range []string{"a", "a", "b"} {
		if got := of(leader); got != leader+" leads" {
			t.Errorf("while %s leads: %q", leader, got)
		}
	}
}

func TestAnAnswerAboutTheLeaderOfARangeBeforeIsNotFresh(t *testing.T) {
	h := newHouse(t)
	self := follower("self", "leader")
	leadBy := func(leader string, epoch int64) {
		self.Ranges = &status.Ranges{Number: 2, Ranges: []status.Range{{Range: 0, Epoch: 1, Leader: "a"}, {Range: 1, Epoch: epoch, Leader: leader}}}
	}
	leadBy("a", 1)
	s := h.survey(self, func(cfg *Config) {
		cfg.Replica = func(context.Context) status.Replica { return self }
		cfg.Outline = func() status.Replica { return self }
	})
	for epoch, leader := range []string{"a", "b", "a"} {
		leadBy(leader, int64(epoch+1))
		if got := s.Replica(t.Context()).Ranges.Ranges[1]; got.Leader != leader {
			t.Errorf("the replica says that %s leads, want %s", got.Leader, leader)
		}
		n := slices.IndexFunc(s.Shard(t.Context()).Replicas, func(r status.Replica) bool { return r.Name == "self" })
		if got := s.Shard(t.Context()).Replicas[n].Ranges.Ranges[1]; got.Leader != leader {
			t.Errorf("the shard says that %s leads, want %s", got.Leader, leader)
		}
	}
}

func TestAShardThatFallsSilentKeepsItsHistory(t *testing.T) {
	h := newHouse(t)
	silent := errors.New("nobody answers")
	answers := true
	s := h.survey(follower("self", ""), func(c *Config) {
		c.Ask = func(_ context.Context, shard, _ string, _ time.Duration, _ int64) ([]byte, error) {
			if !answers {
				return nil, silent
			}
			return json.Marshal(status.Shard{Name: shard, Leader: "a", Clusters: 3, Replicas: []status.Replica{{Name: "a"}}, Terms: []status.Term{{Epoch: 4, Replica: "a"}}})
		}
	})
	before := time.Now()
	if got := s.askShard(t.Context(), "eu1"); got.Fault != "" || !got.Heard.IsZero() {
		t.Errorf("a shard that answers: %+v", got)
	}
	answers = false
	got := s.askShard(t.Context(), "eu1")
	if got.Name != "eu1" || got.Fault != silent.Error() || len(got.Terms) != 1 || got.Terms[0].Epoch != 4 || got.Heard.Before(before) || got.Heard.After(time.Now()) {
		t.Errorf("a shard that has fallen silent: %+v; want its terms, and when it was heard", got)
	}
	if got.Leader != "" || len(got.Replicas) != 0 || got.Clusters != 0 {
		t.Errorf("a shard that has fallen silent: %+v; its leader may be another one by now", got)
	}
	if got := s.askShard(t.Context(), "us1"); !got.Heard.IsZero() || len(got.Terms) != 0 {
		t.Errorf("a shard that never answered: %+v", got)
	}
}

func TestAReplicaThatIsGoneSaysSinceWhen(t *testing.T) {
	h := newHouse(t)
	gone := status.Standby{Replica: "gone", URL: "https://127.0.0.1:1"}
	s := h.survey(status.Replica{Shard: "root", Name: "self", Election: status.Election{State: "leading", Leader: "self"}})
	seen := time.Now().Add(-time.Minute)
	s.roster.note(seen, status.Replica{Name: "self", Election: status.Election{Leader: "self", Standbys: []status.Standby{gone}}})
	for _, r := range s.Shard(t.Context()).Replicas {
		if r.Name == "gone" && (r.Fault == "" || !r.Seen.Equal(seen)) {
			t.Errorf("%+v; want that it was seen at %v", r, seen)
		}
		if r.Name == "self" && !r.Seen.IsZero() {
			t.Errorf("a replica that answers was seen at %v", r.Seen)
		}
	}
}
