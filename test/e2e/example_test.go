package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I3, for a leader that is no part of the shard and has nothing but client-go and the one line that sends the token.
func TestAnExternalLeaderThatWakesUpLateIsFenced(t *testing.T) {
	t.Parallel() // most of it is waiting
	binary := harness.Program(t, "fenced-controller")
	etcd := harness.StartEtcd(t)
	r := harness.NewShard(etcd.URL).Start(t, "a")
	r.WaitRoot()
	timings := faultyTimings // neither is to lose its lease for want of a renewal
	start := func(name string) *harness.Process {
		return harness.Start(t, name, binary, "--kubeconfig="+filepath.Join(r.Root, "admin.kubeconfig"), "--context=root", "--v=4",
			"--lease-duration="+timings.Lease.String(), "--renew-deadline="+timings.Renew.String(), "--retry-period="+timings.Retry.String(),
			"--period=20ms", "--think=200ms")
	}
	wrote := func(p *harness.Process, more int) {
		t.Helper()
		before := len(p.Lines(`"Wrote"`))
		harness.Eventually(t, "it writes", func() bool { return len(p.Lines(`"Wrote"`)) >= before+more })
	}
	first := start("first")
	wrote(first, 2)
	second := start("second")
	harness.Eventually(t, "the second stands for election", func() bool { return len(second.Lines("Attempting to acquire")) > 0 })

	late := stopBetweenDecidingAndWriting(t, first)
	wrote(second, 2)
	first.Signal(syscall.SIGCONT)
	if code := first.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if len(first.Lines(`"Writing"`, "count="+late)) != 1 || len(first.Lines(`"Wrote"`, "count="+late)) != 0 {
		t.Errorf("the late write, of count %s, was not tried, or was made", late)
	}
	// These are the server's words: the client would say that it leads no term.
	if len(first.Lines(`"Fenced"`, "count="+late, "the term is over in which Lease default/heartbeat was held by", "in epoch 1 ")) != 1 {
		t.Errorf("the process does not say that the write of count %s was refused, and why", late)
	}
	if refused, counted := r.Metric(`regent_fencing_refused_total{cause="deposed"}`); !counted || refused < 1 {
		t.Errorf("the server has refused %v writes, want the late one", refused)
	}
	wrote(second, 2)
	if len(first.Lines(`"Leading"`, "epoch=0")) != 1 || len(second.Lines(`"Leading"`, "epoch=1")) != 1 {
		t.Error("want a term of each, in epochs 0 and 1")
	}

	history := heartbeats(t, etcd.Client(t))
	for n, beat := range history {
		if n > 0 && (beat.epoch < history[n-1].epoch || beat.count != history[n-1].count+1) {
			t.Errorf("after %+v came %+v: a write of the first term was made in the second", history[n-1], beat)
		}
	}
	if begin, end := history[0], history[len(history)-1]; begin.epoch != 0 || end.epoch != 1 {
		t.Errorf("the history begins with %+v and ends with %+v: it shows no takeover", begin, end)
	}

	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 0 {
		t.Errorf("the second ended with %d", code)
	}
}

// stopBetweenDecidingAndWriting stops the process when it has decided on a write, and has sent nothing yet. It returns
// the write's count. When the process goes on it is past all its checks and writes, whatever its elector finds out
// meanwhile.
func stopBetweenDecidingAndWriting(t *testing.T, p *harness.Process) (count string) {
	t.Helper()
	decided := func() bool {
		steps := p.Lines(" count=")
		last := steps[len(steps)-1]
		_, count, _ = strings.Cut(strings.TrimSpace(last), " count=")
		return strings.Contains(last, `"Decided"`)
	}
	harness.Eventually(t, "it is stopped between deciding and writing", func() bool {
		if !decided() {
			return false
		}
		p.Signal(syscall.SIGSTOP)
		harness.Eventually(t, "it is stopped", func() bool { return stopped(t, p) })
		if decided() { // still, so it will not have moved on
			return true
		}
		p.Signal(syscall.SIGCONT)
		return false
	})
	return count
}

// stopped reports whether all threads of a process are stopped.
func stopped(t *testing.T, p *harness.Process) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads of process %d: %v", p.PID(), err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		// The state comes after the name, which is in parentheses.
		if err != nil || !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T ") {
			return false
		}
	}
	return true
}

// heartbeat is a write of the ConfigMap, as etcd knows it.
type heartbeat struct {
	revision     int64
	epoch, count int
}

// heartbeats returns all writes of the ConfigMap, in the order in which they were committed.
func heartbeats(t *testing.T, etcd *clientv3.Client) (all []heartbeat) {
	t.Helper()
	const key = "/registry/core/configmaps/root/default/heartbeat"
	now, err := etcd.Get(t.Context(), key)
	if err != nil || len(now.Kvs) != 1 {
		t.Fatalf("read %s: %v, %v", key, now, err)
	}
	for revision := now.Kvs[0].ModRevision; revision >= now.Kvs[0].CreateRevision; revision = all[0].revision - 1 {
		at, err := etcd.Get(t.Context(), key, clientv3.WithRev(revision))
		if err != nil || len(at.Kvs) != 1 {
			t.Fatalf("read %s at revision %d: %v, %v", key, revision, at, err)
		}
		all = append([]heartbeat{decodeHeartbeat(t, at.Kvs[0].Value, at.Kvs[0].ModRevision)}, all...)
	}
	return all
}

func decodeHeartbeat(t *testing.T, value []byte, revision int64) heartbeat {
	t.Helper()
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), value)
	if err != nil {
		t.Fatal(err)
	}
	data := object.(*corev1.ConfigMap).Data
	number := func(key string) int {
		n, err := strconv.Atoi(data[key])
		if err != nil {
			t.Fatalf("revision %d: %v", revision, data)
		}
		return n
	}
	return heartbeat{revision: revision, epoch: number("epoch"), count: number("count")}
}
