package e2e

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/test/e2e/harness"
)

// slow timings are those of a lease that nobody here waits for.
var slow = harness.Timings{Lease: 2 * time.Minute, Renew: 80 * time.Second, Retry: 20 * time.Second}

func TestADeadLeaderIsFollowedLongBeforeItsLeaseExpires(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = slow
	a, b, c := shard.Start(t, "a"), shard.Start(t, "b"), shard.Start(t, "c")
	leader, others := harness.Leader(t, a, b, c)
	others[0].WaitRoot()
	awaitContact(t, "alive", others...)
	user := ask(t, others[0])

	began := time.Now()
	leader.Kill()
	next, standby := harness.Leader(t, others...)
	t.Logf("kill -9 to leading, lease %v: at most %v", shard.Timings.Lease, time.Since(began).Round(time.Millisecond))
	next.CreateWorkspace("after")
	next.WaitWorkspace("after")
	user.mustHaveSucceeded(t)
	// there the other may have been faster to say so
	if lines := next.Lines(`"Takeover"`, `trigger="death"`); len(lines) != 1 && shard.Mode != harness.Coordinated {
		t.Errorf("the log tells of %d takeovers after a death", len(lines))
	}

	// And again, by whoever stood by, and was passed over.
	awaitContact(t, "alive", standby...)
	next.Kill()
	harness.Eventually(t, "the last one leads", func() bool { return standby[0].Leads() && len(standby[0].Terms()) > 0 })
	if terms := standby[0].Terms(); len(terms) != 1 || terms[0].Epoch != "3" {
		t.Errorf("terms of the last one: %v", terms)
	}
}

// A leader that says nothing of its process, as an older version, costs its lease, and no more.
func TestALeaderWithoutAProbeIsFollowedWhenItsLeaseExpires(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	// one for life does not expire, and one that is elected is not just taken
	shard.Mode, shard.OneMachine = harness.Lease, false
	leader := shard.Start(t, "a", "--leader-failure-detection=off")
	harness.Eventually(t, "the first leads", leader.Leads)
	standby := shard.Start(t, "b")
	awaitContact(t, "absent", standby)
	leader.Kill()
	harness.Eventually(t, "the other leads", standby.Leads)
	harness.Eventually(t, "the log says why", func() bool { return len(standby.Lines(`"Leading"`, "expired")) == 1 })
}

func TestAStepDownCanNameTheNextLeader(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Timings{Lease: time.Minute, Renew: 40 * time.Second, Retry: 8 * time.Second}
	if shard.Mode == harness.Coordinated { // the best is elected, whoever is named
		shard.Mode = harness.Lease
	}
	a, b, c := shard.Start(t, "a"), shard.Start(t, "b"), shard.Start(t, "c")
	leader, others := harness.Leader(t, a, b, c)
	awaitContact(t, "alive", others...)

	stepDown := func(to string) error {
		return leader.Kube("system:admin").Discovery().RESTClient().Post().AbsPath("/election/step-down").
			Body([]byte(`{"reason": "e2e", "to": "` + to + `"}`)).Do(t.Context()).Error()
	}
	err := stepDown("nobody")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), replicaOf(others[0])) || !strings.Contains(err.Error(), replicaOf(others[1])) {
		t.Errorf("a step down in favour of nobody: %v", err)
	}
	if !leader.Leads() {
		t.Error("the term ended")
	}
	for _, preferred := range others { // one after the other
		if err := stepDown(replicaOf(preferred)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, preferred.Name()+" leads", preferred.Leads)
		leader = preferred
		// The others may still be in contact with the leader before.
		harness.Eventually(t, "both others follow it", func() bool {
			n, _ := leader.Metric(`regent_failure_detection_followers{name="regent-controllers"}`)
			return n == 2
		})
	}
}

// replicaOf is the name that a replica has in its log.
func replicaOf(r *harness.Replica) string {
	for line := range strings.Lines(r.Log()) {
		if _, rest, ok := strings.Cut(line, `replica="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			return name
		}
	}
	return ""
}

// awaitContact waits until replicas have that contact with the leader's process.
func awaitContact(t *testing.T, state string, replicas ...*harness.Replica) {
	t.Helper()
	for _, r := range replicas {
		harness.Eventually(t, r.Name()+" has the leader "+state, func() bool {
			v, _ := r.Metric(`regent_failure_detection_contact{name="regent-controllers",state="` + state + `"}`)
			return v == 1
		})
	}
}

// A stranger gets nothing from a probe.
func TestTheProbeIsForReplicasOnly(t *testing.T) {
	shard := harness.NewShard("")
	r := shard.Start(t, "a")
	harness.Eventually(t, "it leads", r.Leads)
	var presence struct {
		Probe struct{ Address string }
	}
	if err := json.Unmarshal([]byte(r.Lease().Annotations["regent.dev/presence"]), &presence); err != nil || presence.Probe.Address == "" {
		t.Fatalf("the Lease does not say where the probe is: %+v, %v", presence, err)
	}
	// Its key is vouched for by nobody.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/v1/follow", "/", "/api", "/metrics", "/readyz"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			req, err := http.NewRequestWithContext(t.Context(), method, "https://"+presence.Probe.Address+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%s %s: %s", method, path, resp.Status)
			}
		}
	}
}
