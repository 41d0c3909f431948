package e2e

import (
	"fmt"
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

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/e2e/harness"
)

// divided is a shard whose replicas lead a share of its ranges each.
type divided struct {
	*testing.T
	shard *harness.Shard
	// workspaces counts those that were made.
	workspaces int
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
	var names, clusters []string
	of := map[int]bool{}
	for len(of) < 4 || len(names) < 6 {
		d.workspaces++
		name := fmt.Sprintf("w%d", d.workspaces)
		through.CreateWorkspace(name)
		cluster := through.WaitWorkspace(name)
		names, clusters = append(names, name), append(clusters, cluster)
		of[controllers.RangeOf(logicalcluster.Name(cluster), rangesOfThem)] = true
	}
	for _, cluster := range clusters {
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
	for n, cluster := range clusters {
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

// Every replica leads a share of the ranges. What one of them leads is spread over the others when it is killed, hangs
// or ends, and the terms of the others go on (I17). The number of ranges changes by a roll, and back.
func TestEveryReplicaLeadsAShareI17(t *testing.T) {
	t.Parallel()
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Mode, shard.Timings, shard.OneMachine = harness.ByPresence, faultyTimings, false
	d := &divided{T: t, shard: shard}
	divide := fmt.Sprintf("--leader-election-ranges=%d", rangesOfThem)
	a, b, c := shard.Start(t, "a", divide), shard.Start(t, "b", divide), shard.Start(t, "c", divide)
	d.awaitShares(rangesOfThem, a, b, c)
	d.mustWork(b)

	for name, fault := range map[string]func() (mend func()){
		"killed": func() func() {
			c.Kill()
			return c.Again
		},
		"paused": func() func() {
			c.Signal(syscall.SIGSTOP)
			return func() { c.Signal(syscall.SIGCONT) }
		},
		"told to stop": func() func() {
			c.Signal(syscall.SIGTERM)
			if code := c.Wait(); code != 0 {
				t.Errorf("it ended with %d", code)
			}
			return c.Again
		},
	} {
		before := d.awaitShares(rangesOfThem, a, b, c)
		mend := fault()
		after := d.awaitLeaders(a, b)
		for k, was := range before {
			switch now := after[k]; {
			case was.by == replicaOf(c):
				if now.epoch <= was.epoch {
					t.Errorf("%s: range %d was led in epoch %d, and is in %d", name, k, was.epoch, now.epoch)
				}
			case now != was:
				t.Errorf("%s: range %d was led by %s in epoch %d, which lives, and is by %s in %d", name, k, was.by, was.epoch, now.by, now.epoch)
			}
		}
		d.mustWork(a)
		mend()
	}
	before := d.awaitShares(rangesOfThem, a, b, c)

	t.Run("one range is handed over, and no other", func(t *testing.T) {
		said, err := regent(t, "step-down", "--kubeconfig", filepath.Join(a.Root, "admin.kubeconfig"), "--reason=a test")
		if err == nil || !strings.Contains(said, "say which one is meant") {
			t.Errorf("it does not ask which range is meant: %v, %s", err, said)
		}
		mustRegent(t, "step-down", "--kubeconfig", filepath.Join(a.Root, "admin.kubeconfig"), "--range=3", "--reason=a test")
		var after map[int]leadership
		harness.Eventually(t, "another one leads range 3", func() bool {
			after = d.ranges(a)
			return after[3].epoch == before[3].epoch+1 && after[3].by != "" && after[3].by != before[3].by
		})
		for k := range before {
			if k != 3 && after[k] != before[k] {
				t.Errorf("range %d was led by %v, and is by %v", k, before[k], after[k])
			}
		}
	})

	// back to one leader, by a roll
	for _, r := range []*harness.Replica{a, b, c} {
		r.Signal(syscall.SIGTERM)
		if code := r.Wait(); code != 0 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
		r.AgainWith("--leader-election-ranges=1")
	}
	leader, _ := harness.Leader(t, a, b, c)
	d.mustWork(leader)
	if told, _ := shardAsToldBy(t, leader); slices.ContainsFunc(told.Replicas, func(r status.Replica) bool { return r.Ranges != nil }) {
		t.Error("there are ranges still")
	}
	harness.Throughout(t, time.Second, "one leads", func() bool { return leader.Leads() })
}
