package e2e

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
	"github.com/regent-project/regent/test/e2e/proxy"
)

var cutTimings = flag.Bool("default-timings", false, "cut networks with the default lease timings")

// cut is a way to take the network from a leader, and what follows of it by mode of detection: the trigger of the next
// term; none, if the leader leads on.
var cuts = []struct {
	name string
	cut  func(leader *peer)
	want map[string]string
}{
	{"from etcd", func(l *peer) { l.etcd.Stall() },
		map[string]string{"crash": "step-aside", "suspect": "step-aside"}},
	{"from etcd, answers only", func(l *peer) { l.etcd.StallAnswers() },
		map[string]string{"crash": "step-aside", "suspect": "step-aside"}},
	{"from the standby", func(l *peer) { l.probe.Stall() },
		map[string]string{"crash": "", "suspect": "suspicion"}},
	{"from the standby, what it says only", func(l *peer) { l.probe.StallAnswers() },
		map[string]string{"crash": "", "suspect": "suspicion"}},
	{"from the standby, what it hears only", func(l *peer) { l.probe.StallRequests() },
		map[string]string{"crash": "", "suspect": ""}},
	{"from both", func(l *peer) { l.etcd.Stall(); l.probe.Stall() },
		map[string]string{"crash": "expiry", "suspect": "suspicion"}},
}

// peer is a replica whose ways to etcd and from its standbys can be cut.
type peer struct {
	*harness.Replica
	etcd, probe *proxy.Proxy
}

// Whatever network is cut, exactly one leads, in the end and all along: etcd's history has no write outside of its term.
func TestWhateverNetworkIsCutOneLeadsAndNothingStaleIsWritten(t *testing.T) {
	for _, mode := range []string{"crash", "suspect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			etcd := harness.StartEtcd(t)
			recorder := history.Record(t, etcd.Client(t), "/registry")
			shard := harness.NewShard("")
			shard.Binary, shard.Timings = faultyBinary(t), faultyTimings
			if *cutTimings {
				shard.Timings = harness.Default
			}
			shard.Args = []string{"--writer=fenced", "--leader-failure-detection=" + mode}
			a, b := startPeer(t, shard, etcd.URL, "a"), startPeer(t, shard, etcd.URL, "b")
			term := nextTerm(t, recorder, "")
			for _, c := range cuts {
				// A new Lease: suspicions are damped, and none before counts on it.
				persist(t, "delete the Lease", func(ctx context.Context) error {
					return a.Leases().Delete(ctx, harness.LeaseName, metav1.DeleteOptions{})
				})
				term = nextTerm(t, recorder, term)
				leader, standby := a, b
				if first, _ := harness.Leader(t, a.Replica, b.Replica); first == b.Replica {
					leader, standby = b, a
				}
				harness.Eventually(t, "the standby follows the leader", func() bool {
					alive, _ := standby.Metric(`regent_failure_detection_contact{name="regent-controllers",state="alive"}`)
					return alive == 1
				})
				before := takeovers(standby.Replica, c.want[mode])
				at := time.Now()
				c.cut(leader)
				if c.want[mode] == "" {
					harness.Throughout(t, shard.Timings.Retry*3, "the leader leads on, cut "+c.name, leader.Leads)
					t.Logf("%s: cut %s: the leader leads on", mode, c.name)
				} else {
					term = nextTerm(t, recorder, term)
					t.Logf("%s: cut %s: first write of the next leader after %v", mode, c.name, history.FirstBy(recorder.Events(), term).Sub(at).Round(time.Millisecond))
					if n := takeovers(standby.Replica, c.want[mode]); n != before+1 {
						t.Errorf("cut %s: not because of %s", c.name, c.want[mode])
					}
				}
				leader.etcd.Resume()
				leader.probe.Resume()
				one, _ := harness.Leader(t, a.Replica, b.Replica)
				if leads := map[bool]*harness.Replica{true: leader.Replica, false: standby.Replica}[c.want[mode] == ""]; one != leads {
					t.Errorf("cut %s: %s leads", c.name, one.Name())
				}
			}
			events := recorder.Finish(t)
			spans := history.Terms(events, leaseOf)
			stale, backwards, twice := history.Stale(events, spans), history.Backwards(events, spans), history.Twice(spans)
			if len(stale)+len(backwards)+len(twice) > 0 {
				t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\nterms that came twice: %q", stale, backwards, twice)
			}
		})
	}
}

// startPeer starts a replica behind proxies: its probe listens on 127.0.0.1, and peers dial it on 127.0.0.2.
func startPeer(t *testing.T, shard *harness.Shard, etcd, name string) *peer {
	t.Helper()
	const advertised = "127.0.0.2"
	port := strconv.Itoa(harness.FreePorts(t, 1)[0])
	probe, err := proxy.StartAt(net.JoinHostPort(advertised, port), net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(probe.Close)
	way := startProxy(t, etcd)
	replica := shard.Start(t, name, "--etcd-servers=http://"+way.Addr(), "--probe-port="+port, "--advertise-address="+advertised)
	return &peer{Replica: replica, etcd: way, probe: probe}
}

// takeovers counts those of a replica because of a trigger.
func takeovers(r *harness.Replica, trigger string) float64 {
	return r.MetricSum("regent_takeover_phase_seconds_count", fmt.Sprintf("trigger=%q", trigger), `phase="acquire"`)
}
