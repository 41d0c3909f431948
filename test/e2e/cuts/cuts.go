// Package cuts takes the network from leaders, in every way there is, and says what followed: who noticed what, how
// long it took, and whether all the time one led and nothing stale was written, as etcd's own history has it.
package cuts

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
	"github.com/regent-project/regent/test/e2e/proxy"
)

// Detections are the modes of failure detection that are compared.
var Detections = []string{"crash", "suspect"}

// Cut is a way to take the network from a leader.
type Cut struct {
	Name string
	// FromEtcd: nothing that the leader asks of etcd is answered.
	FromEtcd bool
	make     func(leader *Peer)
	// want is what follows, by mode of detection: the trigger of the next term; empty, if the leader leads on, as a
	// leader for life always does.
	want map[string]string
}

// All are the cuts.
var All = []Cut{
	{"from etcd", true, func(l *Peer) { l.etcd.Stall() },
		map[string]string{"crash": "step-aside", "suspect": "step-aside"}},
	{"from etcd, answers only", true, func(l *Peer) { l.etcd.StallAnswers() },
		map[string]string{"crash": "step-aside", "suspect": "step-aside"}},
	{"from the standby", false, func(l *Peer) { l.probe.Stall() },
		map[string]string{"crash": "", "suspect": "suspicion"}},
	{"from the standby, what it says only", false, func(l *Peer) { l.probe.StallAnswers() },
		map[string]string{"crash": "", "suspect": "suspicion"}},
	{"from the standby, what it hears only", false, func(l *Peer) { l.probe.StallRequests() },
		map[string]string{"crash": "", "suspect": ""}},
	FromAll,
}

// EndsTerms reports whether the leader's terms end by the cut, where replicas suspect others.
func (c Cut) EndsTerms() bool { return c.want["suspect"] != "" }

// FromAll is what others see of a machine that has lost its power or its network.
var FromAll = Cut{"from both", true, func(l *Peer) { l.etcd.Stall(); l.probe.Stall() },
	map[string]string{"crash": "expiry", "suspect": "suspicion"}}

// Outcome is what followed from a cut.
type Outcome struct {
	Cut string
	// Trigger is that of the next term; empty, if the leader led on.
	Trigger string
	// Took is how long it took until etcd told of the next leader's first write; if the leader led on, how long
	// that was watched.
	Took time.Duration
}

// Peer is a replica whose ways to etcd and from its standbys can be cut.
type Peer struct {
	*harness.Replica
	etcd  *harness.Way
	probe *proxy.Proxy
}

// Suffer cuts it off.
func (p *Peer) Suffer(c Cut) { c.make(p) }

// Resume ends what it suffers.
func (p *Peer) Resume() {
	p.etcd.Resume()
	p.probe.Resume()
}

// Shard is one of two replicas whose leaders are cut off one after the other.
type Shard struct {
	mode, detection string
	timings         harness.Timings
	recorder        *history.Recorder
	a, b            *Peer
	term            string
}

// Start starts a shard of servers that have a writer, package history's, in a mode of election and one of detection
// (empty: the default, suspect). pause is that of the writer.
func Start(t testing.TB, server string, timings harness.Timings, mode, detection string, pause time.Duration) *Shard {
	t.Helper()
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard("")
	shard.Binary, shard.Timings, shard.Mode = server, timings, mode
	shard.Args = []string{"--writer=fenced", "--writer-pause=" + pause.String(), "--leader-failure-detection=" + detection}
	s := &Shard{mode: mode, detection: cmp.Or(detection, "suspect"), timings: timings, recorder: history.Record(t, etcd.Client(t), "/registry")}
	s.a, s.b = StartPeer(t, shard, etcd, "a"), StartPeer(t, shard, etcd, "b")
	s.term = s.recorder.NextTerm(t, leaseOf, "")
	return s
}

// electors are what the next leader may have seen first in mode coordinated: who elects has noticed the cut, too, and
// has named it, or has asked the leader, which still reaches etcd, to make way.
var electors = []string{"elected", "release"}

// leaseOf is the end of the election lease's key.
const leaseOf = "system:admin/kube-system/" + harness.LeaseName

// StartPeer starts a replica behind proxies: its probe listens on 127.0.0.1, and peers dial it on 127.0.0.2.
func StartPeer(t testing.TB, shard *harness.Shard, etcd *harness.Etcd, name string) *Peer {
	t.Helper()
	const advertised = "127.0.0.2"
	port := strconv.Itoa(harness.FreePorts(t, 1)[0])
	probe := startProxy(t, net.JoinHostPort(advertised, port), net.JoinHostPort("127.0.0.1", port))
	way := etcd.Way(t)
	replica := shard.Start(t, name, "--etcd-servers="+way.URL, "--probe-port="+port, "--advertise-address="+advertised)
	return &Peer{Replica: replica, etcd: way, probe: probe}
}

func startProxy(t testing.TB, address, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.StartAt(address, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Try cuts a leader off and says what followed, which must be what is wanted; if that is nothing, it is watched for a
// while.
func (s *Shard) Try(t testing.TB, c Cut, while time.Duration) Outcome {
	t.Helper()
	leader, standby := s.anew(t)
	// At any time between two renewals.
	time.Sleep(rand.N(s.timings.Retry))
	want, before := c.want[s.detection], standby.Takeovers()
	if s.mode == harness.ForLife {
		want = ""
	}
	at := time.Now()
	c.make(leader)
	outcome := Outcome{Cut: c.Name, Trigger: want, Took: while}
	leads := leader
	if want == "" {
		harness.Throughout(t, while, "the leader leads on, cut "+c.Name, leader.Leads)
	} else {
		leads = standby
		s.term = s.recorder.NextTerm(t, leaseOf, s.term)
		outcome.Took = history.FirstBy(s.recorder.Events(), s.term).Sub(at)
		triggers := standby.TriggersSince(before)
		wants := []string{want}
		if s.mode == harness.Coordinated {
			wants = append(wants, electors...)
		}
		if s.mode == harness.ByPresence && want == "step-aside" {
			// the lease is released while the presence tells its end: either may be seen first
			wants = append(wants, "release")
		}
		if len(triggers) != 1 || !slices.Contains(wants, triggers[0]) {
			t.Errorf("cut %s: another term because of %q, want one of %q", c.Name, triggers, wants)
			outcome.Trigger = fmt.Sprint(triggers)
		}
	}
	leader.Resume()
	if one, _ := harness.Leader(t, s.a.Replica, s.b.Replica); one != leads.Replica {
		t.Errorf("cut %s: %s leads", c.Name, one.Name())
	}
	return outcome
}

// anew deletes the Lease: suspicions are damped, and none before counts on a new one. It returns when one replica leads
// and the other follows it.
func (s *Shard) anew(t testing.TB) (leader, standby *Peer) {
	t.Helper()
	harness.Eventually(t, "the Lease is deleted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := s.a.Leases().Delete(ctx, harness.LeaseName, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err)
	})
	s.term = s.recorder.NextTerm(t, leaseOf, s.term)
	leader, standby = s.a, s.b
	if first, _ := harness.Leader(t, s.a.Replica, s.b.Replica); first == s.b.Replica {
		leader, standby = s.b, s.a
	}
	harness.Eventually(t, "the standby follows the leader", standby.Follows)
	return leader, standby
}

// Judgement is what etcd's history says of all that was tried.
type Judgement struct{ Terms, Changes int }

// Judge fails the test if a write was committed outside of its term, or a term came twice: if ever more than one led in
// effect.
func (s *Shard) Judge(t testing.TB) Judgement {
	t.Helper()
	events := s.recorder.Finish(t)
	spans := history.Terms(events, leaseOf)
	stale, backwards, twice := history.Stale(events, spans), history.Backwards(events, spans), history.Twice(spans)
	if len(stale)+len(backwards)+len(twice) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\nterms that came twice: %q", stale, backwards, twice)
	}
	changes := 0
	for _, span := range spans {
		changes += history.CountBy(events, span.Term)
	}
	return Judgement{Terms: len(spans), Changes: changes}
}
