package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

// stock is a process of ./candidate: client-go as it is.
type stock struct {
	*harness.Process
	name string
}

// stockTimings are those of the stock electors here. They leave time for a renewal on a busy machine, and, to who has
// to make way, for the release before the lease expires: each is to lead as often as this scenario wants, and no more.
var stockTimings = harness.Timings{Lease: 6 * time.Second, Renew: 4 * time.Second, Retry: 500 * time.Millisecond}

// startStock starts a candidate for the Lease of that name in namespace default of cluster root, through a replica.
func startStock(t *testing.T, binary string, through *harness.Replica, lease, name, emulation, version string) *stock {
	t.Helper()
	return &stock{name: name, Process: harness.Start(t, name, binary,
		"--kubeconfig="+filepath.Join(through.Root, "admin.kubeconfig"), "--lease="+lease, "--name="+name,
		"--emulation-version="+emulation, "--binary-version="+version,
		"--lease-duration="+stockTimings.Lease.String(), "--renew-deadline="+stockTimings.Renew.String(), "--retry-period="+stockTimings.Retry.String(),
	)}
}

// leads waits until it says so, for the n-th time.
func (s *stock) leads(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, s.name+" leads", func() bool { return len(s.Lines(`"Leading"`)) == n })
}

// leadsNoMore waits until it says so, for the n-th time. client-go releases the lease first, so that the next one may
// be faster to say that it leads.
func (s *stock) leadsNoMore(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, s.name+" leads no more", func() bool { return len(s.Lines(`"Not leading"`)) == n })
}

// named waits until the Lease names a holder, and returns its epoch and how long that took.
func waitNamed(t *testing.T, r *harness.Replica, lease string, holder *stock) (epoch int32, took time.Duration) {
	t.Helper()
	began := time.Now()
	harness.Eventually(t, holder.name+" is elected", func() bool {
		l, err := r.Kube("root").CoordinationV1().Leases(metav1.NamespaceDefault).Get(t.Context(), lease, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		epoch = ptr.Deref(l.Spec.LeaseTransitions, 0)
		return harness.Holder(l) == holder.name
	})
	return epoch, time.Since(began)
}

// KEP-4355, with stock clients: the oldest leads, and whatever ends it, the next oldest follows; a still older one that
// comes is made way for. It is slow because stock clients notice by an expired lease, or by asking again, that it is
// their turn, and a candidate is built first.
func TestStockCandidatesLeadInTheOrderOfTheirVersions(t *testing.T) {
	t.Parallel() // most of it is waiting
	binary := harness.Program(t, "candidate")
	shard := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	shard.WaitRoot()
	const lease = "work"
	newest := startStock(t, binary, shard, lease, "newest", "1.33.0", "1.33.0")
	newest.leads(t, 1)
	older := startStock(t, binary, shard, lease, "older", "1.32.0", "1.33.0")
	older.leads(t, 1)
	newest.leadsNoMore(t, 1)
	oldest := startStock(t, binary, shard, lease, "oldest", "1.31.0", "1.33.0")
	oldest.leads(t, 1)
	first, _ := waitNamed(t, shard, lease, oldest)

	oldest.Signal(syscall.SIGTERM)
	oldest.Wait()
	second, took := waitNamed(t, shard, lease, older)
	t.Logf("released: the next was elected after %v", took.Round(time.Millisecond))
	older.leads(t, 2)

	older.Kill()
	third, took := waitNamed(t, shard, lease, newest)
	t.Logf("killed: the next was elected after %v, with leases of %v", took.Round(time.Millisecond), stockTimings.Lease)
	newest.leads(t, 2)
	if first >= second || second >= third {
		t.Errorf("epochs %d, %d, %d: want each term later than the one before", first, second, third)
	}

	again := startStock(t, binary, shard, lease, "again", "1.30.0", "1.30.0")
	again.leads(t, 1)
	newest.leadsNoMore(t, 2)
	harness.Throughout(t, 2*stockTimings.Lease, "it stays so", func() bool { return len(again.Lines(`"Not leading"`)) == 0 })
}
