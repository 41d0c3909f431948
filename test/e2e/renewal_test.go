package e2e

import (
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycoordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

// leaderBehindAProxy returns a leader that reaches etcd through a proxy, and a replica that reaches it directly and
// stands for another lease, so that it leaves this one alone.
func leaderBehindAProxy(t *testing.T) (leader, other *harness.Replica, network *harness.Way) {
	// Long enough for what happens between two renewals that get through: an attempt fails after a third of the
	// deadline.
	return leaderBehindAProxyWith(t, harness.Timings{Lease: 30 * time.Second, Renew: 20 * time.Second, Retry: 500 * time.Millisecond})
}

func leaderBehindAProxyWith(t *testing.T, timings harness.Timings, args ...string) (leader, other *harness.Replica, network *harness.Way) {
	etcd := harness.StartEtcd(t)
	network = etcd.Way(t)
	shard := harness.NewShard(network.URL).Renewed()
	shard.Timings = timings
	leader = shard.Start(t, "leader", args...)
	harness.Leader(t, leader)
	leader.WaitRoot()
	shard.Etcd = etcd.URL
	return leader, shard.Start(t, "other", "--leader-election-name=another"), network
}

// renewalFailed waits until a renewal has failed, from when on it is tried again and again.
func renewalFailed(t *testing.T, r *harness.Replica) {
	t.Helper()
	// Only the lease is written that often by an idle replica.
	failed := func() float64 { return r.MetricSum("rest_client_requests_total", `code="<error>"`, `method="PUT"`) }
	before := failed()
	harness.Eventually(t, "a renewal fails", func() bool { return failed() > before })
}

// Facts 1 and 2 of docs/CLIENT-GO.md: client-go would take the lease back, or work on until the renew deadline.
func TestAForeignTermThatComesAndGoesDuringARenewalEndsOurs(t *testing.T) {
	t.Parallel() // most of it is waiting
	leader, other, network := leaderBehindAProxy(t)
	network.Stall()
	renewalFailed(t, leader)
	foreign := other.Overwrite("foreign", 30)
	foreign.Spec.HolderIdentity = ptr.To("")
	if _, err := other.Leases().Update(t.Context(), foreign, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if terms := leader.Terms(); len(terms) != 1 || terms[0].Reason != "" {
		t.Fatalf("the term is over before the leader could know: %v", terms)
	}
	network.Resume()
	mustBeDeposed(t, leader)

	// The lease is free: the next term is another one, and later than the foreign one.
	harness.Eventually(t, "it leads again", func() bool { return len(leader.Terms()) == 2 && leader.Leads() })
	if epoch, err := strconv.Atoi(leader.Terms()[1].Epoch); err != nil || epoch <= int(*foreign.Spec.LeaseTransitions) {
		t.Errorf("the next term has epoch %s, the foreign one had %d", leader.Terms()[1].Epoch, *foreign.Spec.LeaseTransitions)
	}
	leader.CreateWorkspace("after")
	leader.WaitWorkspace("after")
}

func TestAForeignLeaderThatAppearsWhileRenewalsFailEndsOurTerm(t *testing.T) {
	t.Parallel() // most of it is waiting
	leader, other, network := leaderBehindAProxy(t)
	network.Cut()
	renewalFailed(t, leader)
	other.Overwrite("foreign", 600)
	if terms := leader.Terms(); len(terms) != 1 || terms[0].Reason != "" {
		t.Fatalf("the term is over before the leader could know: %v", terms)
	}
	network.Resume()
	mustBeDeposed(t, leader)
	if holder := harness.Holder(leader.Lease()); holder != "foreign" {
		t.Errorf("the holder is %q: the foreign leader's lease is not ours to touch", holder)
	}
	if !leader.Alive() || leader.Leads() {
		t.Error("want a replica that lives and does not lead")
	}
}

// A renewal is committed at once, and its answer comes late. The others count the lease from what was committed, and so
// must its holder: from when it sent the renewal, not from when it was answered.
func TestARenewalCountsFromItsSendingHoweverLateItsAnswer(t *testing.T) {
	t.Parallel() // most of it is waiting
	// So late that a busy machine does not take as long; a connection without answers is given up after 13 s.
	const late, drain = 4 * time.Second, 10 * time.Second
	timings := harness.Timings{Lease: 30 * time.Second, Renew: 24 * time.Second, Retry: 3 * time.Second}
	leader, other, network := leaderBehindAProxyWith(t, timings, "--controller-drain-timeout="+drain.String())
	renewed := func() float64 { return leader.MetricSum("rest_client_requests_total", `code="200"`, `method="PUT"`) }

	network.StallAnswers()
	before := other.RenewedAt()
	sent := before
	harness.Eventually(t, "a renewal is committed that is not answered", func() bool {
		sent = other.RenewedAt()
		return !sent.Equal(before)
	})
	answered := renewed()
	time.Sleep(late - time.Since(sent))
	network.Resume()
	harness.Eventually(t, "it is answered", func() bool { return renewed() > answered })
	network.Stall()

	harness.Eventually(t, "the term ends", func() bool { return leader.Terms()[0].Reason != "" })
	worked, usable := time.Since(sent), timings.Lease-drain
	t.Logf("the term ended %v after its last renewal was sent, which was answered %v late", worked.Round(time.Millisecond), late)
	if last := other.RenewedAt(); !last.Equal(sent) {
		t.Fatalf("a later renewal was committed, at %v", last)
	}
	if worked < usable-late/2 {
		t.Errorf("the term ended %v after its last renewal, which did not count: want %v", worked, usable)
	}
	if worked > usable+late*3/4 {
		t.Errorf("the term ended %v after its last renewal was sent, want %v: it was counted from its answer", worked, usable)
	}
}

// mustBeDeposed waits for the end of the leader's first term: well before the renew deadline, and for the right cause.
func mustBeDeposed(t *testing.T, leader *harness.Replica) {
	t.Helper()
	began := time.Now()
	harness.EventuallyIn(t, leader.Timings().Renew/2, "the term ends", func() bool { return leader.Terms()[0].Reason != "" })
	t.Logf("the term ended %v after the network was back", time.Since(began).Round(time.Millisecond))
	if term := leader.Terms()[0]; !term.Deposed() {
		t.Errorf("the term ended because of %q", term.Reason)
	}
}

func TestTheLeaseKeepsARecordOfFieldsOnlyForWhoAppliesThem(t *testing.T) {
	t.Parallel() // most of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL).Renewed()
	shard.Mode = harness.Lease // a presence is nothing that operators edit
	shard.Timings = harness.Timings{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 500 * time.Millisecond}
	leader := shard.Start(t, "leader")
	harness.Leader(t, leader)
	harness.Eventually(t, "a renewal leaves nothing of it", func() bool { return len(leader.Lease().ManagedFields) == 0 })

	applied := applycoordinationv1.Lease(leader.Lease().Name, leader.Lease().Namespace).WithAnnotations(map[string]string{"example.org/pager": "on"})
	written, err := leader.Leases().Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "two renewals", func() bool {
		return leader.Lease().Spec.RenewTime.Sub(written.Spec.RenewTime.Time) > shard.Timings.Retry
	})
	lease := leader.Lease()
	if !slices.ContainsFunc(lease.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "operator" }) {
		t.Errorf("what the operator applied is nobody's: %v", lease.ManagedFields)
	}
	if lease.Annotations["example.org/pager"] != "on" {
		t.Errorf("what the operator applied is gone: %v", lease.Annotations)
	}
}
