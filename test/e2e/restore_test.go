package e2e

import (
	"net/http"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// What replicas have cached of a history that did not happen is worth nothing, least of all who leads. They say so, and
// serve rightly once they are restarted.
func TestReplicasOfARestoredEtcdSayThatTheyMustBeRestarted(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			restoreUnder(t, mode)
		})
	}
}

func restoreUnder(t *testing.T, mode string) {
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Mode, shard.OneMachine = mode, mode == harness.ForLife
	a := shard.Start(t, "a")
	b := shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	leader.CreateWorkspace("before")
	leader.WaitWorkspace("before")
	etcd.Kill()
	backup := etcd.Copy(t)
	etcd.Start(t)
	for _, r := range []*harness.Replica{a, b} {
		r.WaitReady()
	}
	leader, _ = harness.Leader(t, a, b)
	leader.CreateWorkspace("after")
	for _, r := range []*harness.Replica{a, b} { // who has seen nothing of what is lost has nothing to say
		r.WaitWorkspace("after")
	}

	etcd.Kill()
	etcd.Restore(t, backup)
	etcd.Start(t)
	for _, r := range []*harness.Replica{a, b} {
		harness.Eventually(t, r.Name()+" is not ready, and says why", func() bool {
			return r.Status("/readyz/etcd-history") == http.StatusInternalServerError && len(r.Lines("restart every replica")) > 0
		})
		harness.Eventually(t, r.Name()+" does not lead", func() bool {
			terms := r.Terms()
			return len(terms) == 0 || terms[len(terms)-1].Reason != ""
		})
		if r.Status("/livez") != http.StatusOK {
			t.Errorf("%s: its liveness depends on etcd", r.Name())
		}
	}
	for _, r := range []*harness.Replica{a, b} {
		r.Signal(syscall.SIGTERM)
		if code := r.Wait(); code != 0 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
		r.Again()
		r.WaitReady()
	}
	leader, _ = harness.Leader(t, a, b)
	leader.WaitWorkspace("before")
	if _, err := leader.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a workspace that the backup does not have: %v, want that it is not found", err)
	}
	leader.CreateWorkspace("again")
	leader.WaitWorkspace("again")
}
