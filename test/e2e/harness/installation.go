package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Installation is several shards that are one system, each with an etcd and replicas of its own.
type Installation struct {
	t testing.TB
	// Root is the first shard. Others are all others.
	Root   *ShardMember
	Others []*ShardMember
}

// ShardMember is a shard of an installation.
type ShardMember struct {
	*Shard
	Etcd     *Etcd
	Replicas []*Replica
}

// Install starts shard root and others, of two replicas each, and returns when all are ready and hear each other.
func Install(t testing.TB, others ...string) *Installation {
	t.Helper()
	i := &Installation{t: t}
	i.Root = newShardMember(t, "root")
	for _, replica := range []string{"a", "b"} {
		i.Root.Replicas = append(i.Root.Replicas, i.Root.Start(t, "root-"+replica))
	}
	i.Root.Replicas[0].WaitRoot()
	i.shard(append([]string{"set", "root"}, i.Root.urls()...)...)
	for _, name := range others {
		membership := filepath.Join(t.TempDir(), name+".yaml")
		m := newShardMember(t, name)
		m.Args, m.admin = []string{"--membership=" + membership}, i.Root.Replicas[0].Root
		for _, replica := range []string{"a", "b"} { // others must know their URLs before they start
			m.Replicas = append(m.Replicas, m.prepare(t, name+"-"+replica))
		}
		add := append([]string{"add", name, "--pki-directory=" + filepath.Join(i.Root.Replicas[0].Root, "pki")}, m.urls()...)
		if err := os.WriteFile(membership, []byte(i.shard(add...)), 0o600); err != nil {
			t.Fatal(err)
		}
		i.Others = append(i.Others, m)
		for _, r := range m.Replicas {
			r.Again()
		}
	}
	for _, m := range i.All() {
		m.WaitHeard(t, len(others))
	}
	return i
}

func newShardMember(t testing.TB, name string) *ShardMember {
	t.Helper()
	m := &ShardMember{Etcd: StartEtcd(t)}
	m.Shard = NewShard(m.Etcd.URL)
	m.Shard.Name = name
	return m
}

// urls are the flags that name the replicas.
func (m *ShardMember) urls() (flags []string) {
	for _, r := range m.Replicas {
		flags = append(flags, "--replica="+r.URL)
	}
	return flags
}

// All are all shards.
func (i *Installation) All() []*ShardMember { return append([]*ShardMember{i.Root}, i.Others...) }

// shard runs `regent shard` and returns its output.
func (i *Installation) shard(args ...string) string {
	i.t.Helper()
	out, err := i.TryShard(args...)
	if err != nil {
		i.t.Fatalf("regent shard %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TryShard is `regent shard`. The error has what it says.
func (i *Installation) TryShard(args ...string) (string, error) {
	cmd := exec.CommandContext(i.t.Context(), Binary("regent"), append([]string{"shard"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(i.Root.Replicas[0].Root, "admin.kubeconfig"))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), &commandError{err, said.String()}
	}
	return string(out), nil
}

type commandError struct {
	error
	said string
}

func (e *commandError) Error() string { return e.error.Error() + ": " + e.said }

// Leader is the replica that leads, once there is one.
func (m *ShardMember) Leader(t testing.TB) (leader *Replica) {
	t.Helper()
	Eventually(t, "somebody leads "+m.Name, func() bool {
		for _, r := range m.Replicas {
			if r.Alive() && r.Leads() {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// WaitHeard waits until all replicas are ready and hear so many other shards.
func (m *ShardMember) WaitHeard(t testing.TB, n int) {
	t.Helper()
	for _, r := range m.Replicas {
		r.WaitReady()
		Eventually(t, r.name+" hears the others", func() bool { return r.MetricSum("regent_shards_heard") == float64(n) })
	}
}
