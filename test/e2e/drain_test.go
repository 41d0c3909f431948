package e2e

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	drainWorkspaces = flag.Int("drain-workspaces", 12, "how many workspaces the shard has in TestUsersOfAShardThatIsDrainedNoticeNothing")
	drainWriters    = flag.Int("drain-writers", 3, "how many clients write in them, each 12 times a second")
	drainAtOnce     = flag.Int("drain-at-once", 2, "how many move at the same time")
)

// A shard is emptied, and removed, while users write in all of its workspaces. No write fails.
func TestUsersOfAShardThatIsDrainedNoticeNothing(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1", "us1")
	d := &drained{T: t, i: i, front: i.StartFront()}
	d.shard("cordon", "root")
	d.shard("cordon", "us1")
	d.fill()
	d.shard("uncordon", "root")
	d.shard("uncordon", "us1")
	var writes, next atomic.Int64
	stop := whileWriting(t.Context(), *drainWriters, func(int) {
		n := int(next.Add(1)) % *drainWorkspaces
		if err := d.write(t.Context(), n); err != nil && t.Context().Err() == nil {
			t.Errorf("a write in workspace %s failed: %v", d.name(n), err)
		}
		writes.Add(1)
	})
	out := d.drain()
	if n := strings.Count(out, "moved from shard eu1"); n != *drainWorkspaces {
		t.Errorf("%d workspaces have moved, of %d:\n%s", n, *drainWorkspaces, out)
	}
	for n := range *drainWorkspaces {
		if at := d.home(n); at == "eu1" {
			t.Errorf("workspace %s is still there", d.name(n))
		}
	}
	harness.Eventually(t, "the shard has nothing any more, and is removed", func() bool {
		_, err := i.TryRegent("shard", "remove", "eu1")
		return err == nil
	})
	before := writes.Load()
	harness.Eventually(t, "users write on", func() bool { return writes.Load() > before+int64(*drainWorkspaces) })
	stop()
	t.Logf("%d writes\n%s", writes.Load(), out[max(0, len(out)-400):])
}

type drained struct {
	*testing.T
	i     *harness.Installation
	front *harness.Front
	kubes []kubernetes.Interface
}

func (*drained) name(n int) string { return fmt.Sprintf("drained-%d", n) }

// shard runs regent shard.
func (d *drained) shard(args ...string) string {
	d.Helper()
	out, err := d.i.TryRegent(append([]string{"shard"}, args...)...)
	if err != nil {
		d.Fatalf("regent shard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// drain runs regent shard drain, for as long as it takes.
func (d *drained) drain() string {
	d.Helper()
	cmd := exec.CommandContext(d.Context(), harness.Binary("regent"), "shard", "drain", "eu1", fmt.Sprintf("--at-once=%d", *drainAtOnce),
		"--kubeconfig="+d.i.Kubeconfig(), "--server="+d.i.Root.Replicas[0].URL)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		d.Fatalf("regent shard drain: %v\n%s", err, said.String())
	}
	return string(out)
}

// fill makes the workspaces on the shard.
func (d *drained) fill() {
	d.Helper()
	d.kubes = make([]kubernetes.Interface, *drainWorkspaces)
	var making sync.WaitGroup
	places := make(chan struct{}, 8)
	for n := range d.kubes {
		places <- struct{}{}
		making.Go(func() {
			defer func() { <-places }()
			through := []*harness.Front{d.front}
			create(d.T, through, "root", d.name(n))
			if _, at := awaitReady(d.T, through, "root", d.name(n)); at != "eu1" {
				d.Errorf("workspace %s is on shard %s", d.name(n), at)
			}
			d.kubes[n] = d.front.Kube("root:" + d.name(n))
		})
	}
	making.Wait()
}

// write writes an object anew.
func (d *drained) write(ctx context.Context, n int) error {
	api := d.kubes[n].CoreV1().ConfigMaps("default")
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}
	made, err := api.Create(ctx, obj, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := api.Delete(ctx, made.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("what was just created is not there: %s", made.Name)
}

// home returns the shard of a workspace.
func (d *drained) home(n int) string {
	d.Helper()
	ws, err := d.front.Dynamic("root").Resource(harness.Workspaces).Get(d.Context(), d.name(n), metav1.GetOptions{})
	if err != nil {
		d.Error(err)
		return ""
	}
	return clusters.ShardOf(ws, clusters.ShardLabel, "root")
}
