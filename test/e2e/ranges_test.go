package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/e2e/cuts"
	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// divided is a shard whose replicas lead a share of its ranges each.
type divided struct {
	*testing.T
	recorder *history.Recorder
	a, c     *harness.Replica
	b        *cuts.Peer
	// workspaces counts those that were made.
	workspaces int
	// given is a range that was handed over, and until the epoch in which it was.
	given, until int64
}

const rangesOfThem = 8

// leadership is who leads a range, and in which epoch.
type leadership struct {
	by    string
	epoch int64
}

// ranges returns who leads which range, as a replica sees it.
func (d *divided) ranges(at *harness.Replica) map[int]leadership {
	told, _ := shardAsToldBy(d.T, at)
	for _, r := range told.Replicas {
		if r.Name != replicaOf(at) || r.Ranges == nil {
			continue
		}
		out := map[int]leadership{}
		for _, of := range r.Ranges.Ranges {
			out[of.Range] = leadership{of.Leader, of.Epoch}
		}
		return out
	}
	return nil
}

// awaitShares waits until these replicas lead all n ranges, each the same number of them or one more, and says who
// leads which.
func (d *divided) awaitShares(n int, replicas ...*harness.Replica) (all map[int]leadership) {
	d.Helper()
	harness.Eventually(d.T, fmt.Sprintf("%d replicas share %d ranges", len(replicas), n), func() bool {
		all = d.ranges(replicas[0])
		count := map[string]int{}
		for _, of := range all {
			count[of.by]++
		}
		least, most := n, 0
		for _, r := range replicas {
			least, most = min(least, count[replicaOf(r)]), max(most, count[replicaOf(r)])
		}
		return len(all) == n && len(count) == len(replicas) && most-least <= 1
	})
	return all
}

// awaitLeaders waits until all ranges are led by these replicas, however many by each, and says who leads which.
func (d *divided) awaitLeaders(replicas ...*harness.Replica) (all map[int]leadership) {
	d.Helper()
	harness.Eventually(d.T, fmt.Sprintf("%d replicas lead all ranges", len(replicas)), func() bool {
		all = d.ranges(replicas[0])
		for _, of := range all {
			if !slices.ContainsFunc(replicas, func(r *harness.Replica) bool { return replicaOf(r) == of.by }) {
				return false
			}
		}
		return len(all) == rangesOfThem
	})
	return all
}

// mustWork has leaders of several ranges work for users through a replica: what waits for a parent is made, and what is
// deleted goes with its content.
func (d *divided) mustWork(through *harness.Replica) {
	d.Helper()
	var names, made []string
	of := map[int]bool{}
	for len(of) < 4 || len(names) < 6 {
		d.workspaces++
		name := fmt.Sprintf("w%d", d.workspaces)
		through.CreateWorkspace(name)
		cluster := through.WaitWorkspace(name)
		names, made = append(names, name), append(made, cluster)
		of[clusters.RangeOf(logicalcluster.Name(cluster), rangesOfThem)] = true
	}
	for _, cluster := range made {
		kube := through.Kube(cluster)
		if _, err := kube.CoreV1().Namespaces().Create(d.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
			d.Fatal(err)
		}
		owner, err := kube.CoreV1().ConfigMaps("n").Create(d.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			d.Fatal(err)
		}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}
		if _, err := kube.CoreV1().ConfigMaps("n").Create(d.Context(), owned, metav1.CreateOptions{}); err != nil {
			d.Fatal(err)
		}
		if err := kube.CoreV1().ConfigMaps("n").Delete(d.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
			d.Fatal(err)
		}
	}
	for n, cluster := range made {
		harness.Eventually(d.T, "what has lost its owner goes from "+names[n], func() bool {
			_, err := through.Kube(cluster).CoreV1().ConfigMaps("n").Get(d.Context(), "owned", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	workspaces := through.Dynamic("root").Resource(harness.Workspaces)
	for _, name := range names {
		if err := workspaces.Delete(d.Context(), name, metav1.DeleteOptions{}); err != nil {
			d.Fatal(err)
		}
	}
	harness.Eventually(d.T, "workspaces go with their content", func() bool {
		list, err := workspaces.List(d.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

// Every replica leads a share of the ranges. What one of them leads is spread over the others when it is killed, hangs,
// ends, or loses its network, and the terms of the others go on (I17). The number of ranges changes by a roll, and
// back. All the time no term writes outside of its range's Lease (I2, I3), as etcd's history has it. Without -all the
// network is lost in one of the ways there are.
func TestEveryReplicaLeadsAShareI17(t *testing.T) {
	t.Parallel()
	var ways []cuts.Cut
	for _, c := range cuts.All {
		if c.EndsTerms() {
			ways = append(ways, c)
		}
	}
	d := startDivided(t)
	d.suffer("killed", d.c, func() func() { d.c.Kill(); return d.c.Again })
	d.suffer("paused", d.c, func() func() { d.c.Signal(syscall.SIGSTOP); return func() { d.c.Signal(syscall.SIGCONT) } })
	d.suffer("told to stop", d.c, func() func() {
		d.c.Signal(syscall.SIGTERM)
		if code := d.c.Wait(); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		return d.c.Again
	})
	d.cut(ways[rand.IntN(len(ways))])
	d.awaitShares(rangesOfThem, d.a, d.b.Replica, d.c)
	t.Run("one range is handed over, and no other", func(t *testing.T) { d.handOver(t, d.a) })

	// back to one leader, by a roll
	for _, r := range d.all() {
		r.Signal(syscall.SIGTERM)
		if code := r.Wait(); code != 0 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
		r.AgainAlso(harness.DividedInto(1))
	}
	leader, _ := harness.Leader(t, d.all()...)
	d.mustWork(leader)
	if told, _ := shardAsToldBy(t, leader); slices.ContainsFunc(told.Replicas, func(r status.Replica) bool { return r.Ranges != nil }) {
		t.Error("there are ranges still")
	}
	harness.Throughout(t, time.Second, "one leads", func() bool { return leader.Leads() })
	d.judge()

	if *all {
		for _, c := range ways { // one a shard: what has come back again and again stays away for longer
			t.Run("cut "+c.Name, func(t *testing.T) {
				t.Parallel()
				d := startDivided(t)
				d.cut(c)
				d.judge()
			})
		}
	}
}

// startDivided starts a shard of three replicas, one of them behind proxies, which share its ranges and write.
func startDivided(t *testing.T) *divided {
	t.Helper()
	etcd := harness.StartEtcd(t)
	shard, direct := harness.NewShard(""), "--etcd-servers="+etcd.URL
	shard.Binary, shard.Mode, shard.Timings, shard.OneMachine = harness.Program(t, "faulty"), harness.ByPresence, faultyTimings, false
	shard.Args = []string{"--writer=fenced", "--writer-pause=500ms", harness.DividedInto(rangesOfThem)}
	d := &divided{T: t, recorder: history.Record(t, etcd.Client(t), "/registry")}
	d.a, d.b, d.c = shard.Start(t, "a", direct), cuts.StartPeer(t, shard, etcd, "b"), shard.Start(t, "c", direct)
	d.awaitShares(rangesOfThem, d.all()...)
	d.mustWork(d.b.Replica)
	return d
}

func (d *divided) all() []*harness.Replica { return []*harness.Replica{d.a, d.b.Replica, d.c} }

// suffer has a replica suffer a fault, by which others lead what it led.
func (d *divided) suffer(name string, victim *harness.Replica, fault func() (mend func())) {
	d.Helper()
	others := slices.DeleteFunc(d.all(), func(r *harness.Replica) bool { return r == victim })
	before := d.awaitShares(rangesOfThem, d.all()...)
	began := time.Now()
	d.Logf("%s", name)
	mend := fault()
	after := d.awaitLeaders(others...)
	d.Logf("others lead all after %v", time.Since(began).Round(time.Millisecond))
	for k, was := range before {
		switch now := after[k]; {
		case was.by == replicaOf(victim):
			if now.epoch <= was.epoch {
				d.Errorf("%s: range %d was led in epoch %d, and is in %d", name, k, was.epoch, now.epoch)
			}
		case now != was:
			d.Errorf("%s: range %d was led by %s in epoch %d, which lives, and is by %s in %d", name, k, was.by, was.epoch, now.by, now.epoch)
		}
	}
	d.mustWork(others[0])
	mend()
}

func (d *divided) cut(c cuts.Cut) {
	d.Helper()
	d.suffer("cut "+c.Name, d.b.Replica, func() func() { d.b.Suffer(c); return d.b.Resume })
}

// judge fails the test if a term wrote outside of its range's Lease.
func (d *divided) judge() {
	d.Helper()
	events := d.recorder.Finish(d)
	spans := history.Terms(events, leaseOf)
	stale, backwards, twice := history.Stale(events, spans), history.Backwards(events, spans), history.Twice(spans)
	changes := 0
	for _, span := range spans {
		changes += history.CountBy(events, span.Term)
	}
	d.Logf("%d terms, %d changes: %d stale", len(spans), changes, len(stale))
	// whoever looks may see a later one than the next term
	if was, next := holderIn(spans, d.given, d.until), holderIn(spans, d.given, d.until+1); d.until > 0 && (was == "" || next == "" || was == next) {
		d.Errorf("range %d was handed over in epoch %d by %q, and taken by %q", d.given, d.until, was, next)
	}
	if len(stale)+len(backwards)+len(twice) > 0 || changes < len(spans) {
		d.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\nterms that came twice: %q", stale, backwards, twice)
	}
}

// holderIn returns who has led a range in an epoch.
func holderIn(spans []history.Span, of, epoch int64) string {
	for _, span := range spans {
		if holder, ok := strings.CutPrefix(span.Term, fmt.Sprintf("%d.", epoch)); ok && strings.HasSuffix(holder, fmt.Sprintf(".r%d", of)) {
			return holder
		}
	}
	return ""
}

// handOver has a replica hand over one of its ranges. Others could not reach the one behind proxies, to pass that on.
func (d *divided) handOver(t *testing.T, leader *harness.Replica) {
	kubeconfig := filepath.Join(leader.Root, "admin.kubeconfig")
	said, err := regent(t, "step-down", "--kubeconfig", kubeconfig, "--reason=a test")
	if err == nil || !strings.Contains(said, "say which one is meant") {
		t.Errorf("it does not ask which range is meant: %v, %s", err, said)
	}
	before, given := d.ranges(leader), 0
	for k, of := range before {
		if of.by == replicaOf(leader) {
			given = k
		}
	}
	d.given, d.until = int64(given), before[given].epoch
	mustRegent(t, "step-down", "--kubeconfig", kubeconfig, fmt.Sprintf("--range=%d", given), "--reason=a test")
	var after map[int]leadership
	harness.Eventually(t, fmt.Sprintf("another one leads range %d", given), func() bool {
		after = d.ranges(leader)
		return after[given].epoch > before[given].epoch && after[given].by != "" && after[given].by != before[given].by
	})
	for k := range before {
		if k != given && after[k] != before[k] {
			t.Errorf("range %d was led by %v, and is by %v", k, before[k], after[k])
		}
	}
}
