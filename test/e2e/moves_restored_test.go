package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I16: a shard is restored from a backup of before a move. The command settles which shard has the workspace: the one
// to which it had moved, and if that is the restored one, the one that it had left. Nothing that is there is lost, and
// the workspace below, on a third shard, is reached all the same.
func TestAWorkspaceIsOnOneShardAfterARestoreI16(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1", "us1")
	u := newUsed(t, i)
	r := &restored{T: t, Installation: i, front: u.front}
	former, all := u.member(u.on()), i.All()
	// commands need the root shard
	third := all[slices.IndexFunc(all, func(m *harness.ShardMember) bool { return m != former && m != i.Root })]
	next := all[slices.IndexFunc(all, func(m *harness.ShardMember) bool { return m != former && m != third })]
	below := func(parent, name string, on *harness.ShardMember) {
		t.Helper()
		cordon := func(verb string) {
			for _, m := range all {
				if m == on {
					continue
				}
				if _, err := i.TryRegent("shard", verb, m.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		cordon("cordon")
		create(t, []*harness.Front{u.front}, parent, name)
		if _, at := awaitReady(t, []*harness.Front{u.front}, parent, name); at != on.Name {
			t.Fatalf("workspace %s of %s is on %s", name, parent, at)
		}
		cordon("uncordon")
	}
	below("root:used", "below", third)
	reach := func(path string) {
		t.Helper()
		harness.Eventually(t, path+" is served", func() bool {
			_, err := u.front.Kube(path).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}

	// Its former shard is restored: both have it.
	backup := r.backup(former)
	u.move(next.Name)
	u.write("after-the-move", true)
	u.awaitGone(former)
	r.restore(former, backup)
	if plan := u.reconcile(former, "--plan"); len(plan) != 1 || plan[0].Shard != next.Name || plan[0].From != former.Name || plan[0].TakenBack {
		t.Fatalf("the plan is %+v", plan)
	}
	u.reconcile(former)
	u.mustBeOn(next.Name)
	u.mustHaveAll()
	u.write("after-the-command", true)
	u.awaitGone(former)
	reach("root:used:below")
	if again := u.reconcile(former); len(again) != 0 {
		t.Errorf("there is still something to settle: %+v", again)
	}

	// Its new shard is restored: none has it, nor a workspace in it. The former one keeps both, because that of the
	// workspaces below them is down.
	below("root:used", "inner", next)
	below("root:used:inner", "deep", third)
	backup = r.backup(former)
	third.Kill()
	u.move(former.Name)
	if _, err := i.TryRegent("cluster", "move", "root:used:inner", "--to="+former.Name); err != nil {
		t.Fatal(err)
	}
	former.Kill()
	former.Etcd.Restore(t, backup)
	for _, m := range []*harness.ShardMember{former, third} {
		m.Again(t)
	}
	r.waitHeard()
	if out, err := i.TryRegent("cluster", "move", "root:used", "--to="+third.Name); err == nil || !strings.Contains(err.Error(), "regent shard reconcile "+former.Name) {
		t.Errorf("a move does not say what to do: %s, %v", out, err)
	}
	if settled := u.reconcile(former); len(settled) != 2 || settled[0].Path != "root:used" || settled[1].Path != "root:used:inner" ||
		slices.ContainsFunc(settled, func(r reconciled) bool { return r.Shard != next.Name || !r.TakenBack }) {
		t.Fatalf("what was settled is %+v", settled)
	}
	u.mustBeOn(next.Name)
	u.mustHaveAll()
	u.write("after-its-return", true)
	for _, path := range []string{"root:used:below", "root:used:inner", "root:used:inner:deep"} {
		reach(path)
	}
	u.move(third.Name)
	u.mustHaveAll()
}

func (u *used) move(to string) {
	u.Helper()
	if _, err := u.i.TryRegent("cluster", "move", "root:used", "--to="+to); err != nil {
		u.Fatal(err)
	}
}

// reconciled is what the command prints of a workspace.
type reconciled struct {
	Path, Shard, From, Why string
	TakenBack              bool
}

func (u *used) reconcile(restored *harness.ShardMember, flags ...string) (all []reconciled) {
	u.Helper()
	out, err := u.i.TryRegent(append([]string{"shard", "reconcile", restored.Name, "-o", "json"}, flags...)...)
	if err != nil {
		u.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		u.Fatalf("%v\n%s", err, out)
	}
	return all
}

// awaitGone waits until a shard has nothing of the workspace any more.
func (u *used) awaitGone(m *harness.ShardMember) {
	u.Helper()
	etcd := m.Etcd.Client(u)
	harness.Eventually(u, "shard "+m.Name+" has removed the workspace", func() bool {
		all, err := etcd.Get(u.Context(), "/registry/core.kcp.io/logicalclusters/"+u.cluster+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && all.Count == 0
	})
	_ = etcd.Close()
}
