package regenttest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// write creates a ConfigMap, within a time.
func write(t *testing.T, c kubernetes.Interface, name string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// eventually waits until a ConfigMap is created. A client whose server ends may not hear whether it was.
func eventually(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, until(ctx, name+" is created", func(context.Context) error {
		if err := write(t, c, name, answerPatience); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}))
}

// Each fault of the leader of two replicas is succeeded by the other one, clients go on, and it comes back.
func TestALeaderIsFollowedWhateverHappensToIt(t *testing.T) {
	t.Parallel()
	server := Start(t, Replicas(2), Flags("--leader-election-lease-duration=6s", "--leader-election-renew-deadline=4s", "--leader-election-retry-period=1s"))
	for _, fault := range []struct {
		name      string
		make, end func(*Replica, testing.TB)
	}{
		{"kill", (*Replica).kill, (*Replica).restart},
		{"stop", func(r *Replica, t testing.TB) { r.Stop(t) }, (*Replica).restart},
		{"pause", func(r *Replica, t testing.TB) { r.Pause(t) }, func(r *Replica, t testing.TB) { r.Resume(t) }},
		{"cut", func(r *Replica, t testing.TB) { r.Cut(t) }, func(r *Replica, t testing.TB) { r.Heal(t) }},
	} {
		leader := server.Leader(t)
		users := client(t, server.Config("root"))
		eventually(t, users, "before-"+fault.name)
		fault.make(leader, t)
		eventually(t, users, "during-"+fault.name)
		if next := server.Leader(t); next == leader {
			t.Errorf("%s: %s still leads", fault.name, leader.Name())
		}
		fault.end(leader, t)
		eventually(t, client(t, leader.Config("root")), "after-"+fault.name)
	}
}

func (r *Replica) kill(t testing.TB)    { r.Kill(t) }
func (r *Replica) restart(t testing.TB) { r.Restart(t) }

// A client of a replica that is cut off hears nothing, keeps its connection, and is answered on it later.
func TestWhatIsCutOffIsSilentUntilItIsHealed(t *testing.T) {
	t.Parallel()
	server := Start(t)
	users := client(t, server.Config("root"))
	eventually(t, users, "before")
	for _, p := range []*Process{server.Replicas[0].Process, server.Etcd} {
		p.Cut(t)
		if err := write(t, users, "cut-"+p.Name(), time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write while %s is cut off: %v", p.Name(), err)
		}
		p.Heal(t)
		eventually(t, users, "healed-"+p.Name())
	}
	// Cut from both ends, the way is open only when both are healed.
	server.Etcd.Cut(t)
	server.Replicas[0].Cut(t)
	server.Etcd.Heal(t)
	if err := write(t, users, "half", time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write while the replica is cut off: %v", err)
	}
	server.Replicas[0].Heal(t)
	eventually(t, users, "whole")
}

func TestAnEtcdKeepsItsDataWhenItIsKilled(t *testing.T) {
	t.Parallel()
	server := Start(t)
	users := client(t, server.Config("root"))
	eventually(t, users, "kept")
	server.Etcd.Kill(t)
	if err := write(t, users, "lost", time.Second); err == nil {
		t.Error("a write was made without an etcd")
	}
	server.Etcd.Restart(t)
	eventually(t, users, "more")
	if _, err := users.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAnInstallationOfSeveralShards(t *testing.T) {
	t.Parallel()
	server := Start(t, Shards(2))
	clusters := map[string]string{}
	for _, name := range []string{"a", "b", "b:c"} {
		w := server.Workspace(t, name)
		clusters[w.Path] = w.Cluster
		eventually(t, client(t, w.Config), "hello")
	}
	if len(clusters) != 3 || clusters["root:b:c"] == "" || clusters["root:b:c"] == clusters["root:b"] {
		t.Errorf("the workspaces are %v", clusters)
	}
	for _, shard := range server.Shards {
		if leader := shard.Leader(t); leader != shard.Replicas[0] {
			t.Errorf("%s leads %s", leader.Name(), shard.Name)
		}
	}
	if names := []string{server.Shards[0].Name, server.Shards[1].Name}; names[0] != "root" || names[1] != "shard-1" {
		t.Errorf("the shards are %q", names)
	}
	// Without the front nobody comes in, and each replica still serves who comes to it.
	users := client(t, server.Config("root"))
	eventually(t, users, "before")
	server.Front.Kill(t)
	if err := write(t, users, "refused", answerPatience); err == nil {
		t.Error("a write was made without the front")
	}
	eventually(t, client(t, server.Replicas[0].Config("root")), "direct")
	server.Front.Restart(t)
	eventually(t, users, "after")
}

// A process that ends by itself is not overlooked, and the ends of all logs are shown.
func TestAProcessThatEndsByItselfFailsTheTest(t *testing.T) {
	t.Parallel()
	var pid int
	f := fails(t, func(t testing.TB) {
		r := Start(t).Replicas[0]
		pid = r.PID()
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		<-r.run.ended
	})
	if f.fatal != "" || !f.has("root-replica-0 (pid ") || !f.has("has ended by itself: signal: killed") {
		t.Errorf("it says %q, %q", f.fatal, f.said)
	}
	if !f.has("---- root-etcd (pid ") || !f.has("---- root-replica-0 (pid ") || !f.has("Serving securely") {
		t.Errorf("the logs are not shown: %q", f.said)
	}
}
