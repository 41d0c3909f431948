package e2e

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	moveFaults = flag.Int("move-faults", 8, "how many moves something befalls, in TestAMoveThatIsStruckLeavesTheWorkspaceOnOneShardI16")
	moveFirst  = flag.Int("move-first", 0, "how many of these are left out first")
)

// I16: whatever befalls a move, the workspace is on one shard, with all that was written, and moves again.
func TestAMoveThatIsStruckLeavesTheWorkspaceOnOneShardI16(t *testing.T) {
	t.Parallel()
	i := harness.InstallApart(t, "eu1", "us1")
	u := newUsed(t, i)
	strikes := u.strikes()
	for n := *moveFirst; n < *moveFirst+*moveFaults; n++ {
		stop := u.writes(2)
		from, to := u.on(), u.another()
		// each kind of strike meets another step the next time, and all of them in as many rounds as there are
		// steps
		strike, step := strikes[n%len(strikes)], moveSteps[(n+n/len(strikes))%len(moveSteps)]
		reached := u.awaitStep(step, from, to)
		move := harness.Command(t, "regent", "cluster", "move", "root:used", "--to="+to, "--kubeconfig="+i.Kubeconfig(), "--server="+i.Root.Replicas[0].URL)
		var said strings.Builder
		move.Stderr = &said
		if err := move.Start(); err != nil {
			t.Fatal(err)
		}
		reached()
		t.Logf("from %s to %s, once %s, %s", from, to, step.what, strike.what)
		end := strike.do(struck{from: u.member(from), to: u.member(to), command: move.Process.Pid})
		_ = move.Wait()
		if end != nil {
			end()
		}
		u.restart()
		at := u.settled()
		stop()
		t.Logf("it is on %s; the command has said: %s", at, strings.TrimSpace(said.String()))
		u.mustHaveAll()
		if out, err := i.TryRegent("cluster", "move", "root:used", "--to="+u.another()); err != nil {
			t.Fatalf("it does not move again after this: %s (%s): %v\n%s", strike.what, said.String(), err, out)
		}
		u.settled()
		u.mustHaveAll()
	}
}

// struck is a move that is under way.
type struck struct {
	from, to *harness.ShardMember
	command  int // the process that moves it
}

// strike is something that befalls a move. do returns how it ends once the command has ended; nil: it has no end.
type strike struct {
	what string
	do   func(struck) (end func())
}

// strikes are all of them: those first that make test has time for.
func (u *used) strikes() []strike {
	of := func(m *harness.ShardMember, leads bool) (out []*harness.Replica) {
		for _, r := range m.Replicas {
			if r.Alive() && r.Leads() == leads {
				out = append(out, r)
			}
		}
		return out
	}
	kill := func(m *harness.ShardMember, leads bool) func() {
		if all := of(m, leads); len(all) > 0 {
			all[0].Kill()
		}
		return nil
	}
	pause := func(m *harness.ShardMember) func() {
		for _, paused := range of(m, true) {
			paused.Signal(syscall.SIGSTOP)
			harness.Eventually(u, "another replica leads", func() bool {
				return slices.ContainsFunc(m.Replicas, func(r *harness.Replica) bool { return r != paused && r.Alive() && r.Leads() })
			})
			paused.Signal(syscall.SIGCONT)
		}
		return nil
	}
	etcd := func(m *harness.ShardMember) func() { m.Etcd.Kill(); m.Etcd.Start(u); return nil }
	cut := func(ways ...*harness.Way) func() {
		for _, w := range ways {
			w.Cut()
		}
		return func() {
			for _, w := range ways {
				w.Resume()
			}
		}
	}
	stall := func(w *harness.Way) func() { w.Stall(); return w.Resume }
	users := func(m *harness.ShardMember) *harness.Way { return u.i.From(nil, m) }
	return []strike{
		{"the command is killed", func(s struck) func() { _ = syscall.Kill(s.command, syscall.SIGKILL); return nil }},
		{"the leader of its shard is killed", func(s struck) func() { return kill(s.from, true) }},
		{"the leader of its new shard is killed", func(s struck) func() { return kill(s.to, true) }},
		{"the front is killed", func(struck) func() { u.front.Kill(); return nil }},
		{"the command is interrupted", func(s struck) func() { _ = syscall.Kill(s.command, syscall.SIGINT); return nil }},
		{"a standby of its new shard is killed", func(s struck) func() { return kill(s.to, false) }},
		{"it is cancelled", func(s struck) func() { u.cancel(s.from.Name); return nil }},
		{"the shards are cut from each other", func(s struck) func() { return cut(u.i.Between(s.from, s.to)) }},
		// what follows is in no run of make test
		{"its shard is cut from the command and the front", func(s struck) func() { return cut(users(s.from)) }},
		{"its new shard is cut from the command and the front", func(s struck) func() { return cut(users(s.to)) }},
		{"its new shard is cut from all", func(s struck) func() { return cut(u.waysTo(s.to)...) }},
		{"its shard is cut from all", func(s struck) func() { return cut(u.waysTo(s.from)...) }},
		{"nothing passes between its new shard, and the command and the front", func(s struck) func() { return stall(users(s.to)) }},
		{"nothing passes between its shard, and the command and the front", func(s struck) func() { return stall(users(s.from)) }},
		{"nothing passes between the shards", func(s struck) func() { return stall(u.i.Between(s.from, s.to)) }},
		{"etcd of its shard is restored", func(s struck) func() { u.restore(s.from); return nil }},
		{"etcd of its new shard is restored", func(s struck) func() { u.restore(s.to); return nil }},
		{"the leader of its shard is paused until another one leads", func(s struck) func() { return pause(s.from) }},
		{"the leader of its new shard is paused until another one leads", func(s struck) func() { return pause(s.to) }},
		{"etcd of its shard is killed", func(s struck) func() { return etcd(s.from) }},
		{"etcd of its new shard is killed", func(s struck) func() { return etcd(s.to) }},
		{"a standby of its shard is killed", func(s struck) func() { return kill(s.from, false) }},
	}
}

// waysTo are all ways from others to a shard, and from it to them.
func (u *used) waysTo(m *harness.ShardMember) []*harness.Way {
	all := []*harness.Way{u.i.From(nil, m)}
	for _, other := range u.i.All() {
		if other != m {
			all = append(all, u.i.Between(m, other))
		}
	}
	return all
}

// restore makes a shard anew of a snapshot of its etcd, as docs/BACKUP.md has it. Nothing is lost.
func (u *used) restore(m *harness.ShardMember) {
	u.Helper()
	m.KillReplicas()
	backup, etcdctl := filepath.Join(u.TempDir(), "backup.db"), harness.Program(u, "etcdctl")
	u.run(exec.CommandContext(u.Context(), etcdctl, "--endpoints="+m.Etcd.URL, "snapshot", "save", backup))
	m.Etcd.Kill()
	for _, member := range m.Etcd.Members {
		if err := os.RemoveAll(member.Directory()); err != nil {
			u.Fatal(err)
		}
		etcdutl := exec.CommandContext(u.Context(), etcdctl, "snapshot", "restore", backup, "--data-dir="+member.Directory(), "--name="+member.Name,
			"--initial-cluster="+member.Name+"="+member.PeerURL(), "--initial-advertise-peer-urls="+member.PeerURL(), "--bump-revision=1000000000", "--mark-compacted")
		etcdutl.Args[0] = "etcdutl"
		u.run(etcdutl)
	}
	m.Again(u)
}

func (u *used) run(cmd *exec.Cmd) {
	u.Helper()
	if said, err := cmd.CombinedOutput(); err != nil {
		u.Fatalf("%v: %v\n%s", cmd, err, said)
	}
}

// moveSteps are those of a move at which something may befall it, by what is then written in etcd.
var moveSteps = []moveStep{
	{what: "it comes", newShard: true, says: clusters.ComingAnnotation},
	{what: "some of it has come", newShard: true, object: true},
	{what: "it is frozen", says: clusters.LeavingAnnotation},
	{what: "all of it has come", newShard: true, says: clusters.CompleteAnnotation},
	{what: "it has departed", says: clusters.MovedAnnotation},
}

// moveStep is a write of the new shard, or of the one that it is on: of an object, or of the LogicalCluster.
type moveStep struct {
	what             string
	newShard, object bool
	says             string
}

// awaitStep returns a function that returns once the next move has reached a step, or has ended.
func (u *used) awaitStep(s moveStep, from, to string) (reached func()) {
	u.Helper()
	at, key := from, "/registry/core.kcp.io/logicalclusters/"+u.cluster+"/"
	if s.newShard {
		at = to
	}
	if s.object {
		key = "/registry/core/configmaps/" + u.cluster + "/"
	}
	ctx, cancel := context.WithTimeout(u.Context(), harness.Patience)
	changes := u.member(at).Etcd.Client(u).Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-changes; !created.Created {
		u.Fatalf("etcd of %s does not tell of changes: %v", at, created.Err())
	}
	return func() {
		u.Helper()
		defer cancel()
		for some := range changes {
			for _, e := range some.Events {
				if e.Type == clientv3.EventTypePut && bytes.Contains(e.Kv.Value, []byte(s.says)) {
					return
				}
			}
		}
		u.Fatalf("the move does not come so far that %s", s.what)
	}
}

func (u *used) member(name string) *harness.ShardMember {
	all := u.i.All()
	return all[slices.IndexFunc(all, func(m *harness.ShardMember) bool { return m.Name == name })]
}

// cancel is what somebody else does who does not want it to move.
func (u *used) cancel(from string) {
	u.Helper()
	out, err := u.i.TryRegent("cluster", "move", "root:used", "--cancel")
	if err != nil {
		u.Logf("it was cancelled too early or too late: %v", err)
		return
	}
	if at := u.settled(); at != from {
		u.Errorf("the move was cancelled (%s), and it is on %s", out, at)
	}
}

// restart starts what has died.
func (u *used) restart() {
	u.Helper()
	for _, m := range u.i.All() {
		for _, r := range m.Replicas {
			if !r.Alive() {
				r.Again()
			}
		}
	}
	for _, m := range u.i.All() {
		m.WaitHeard(u, len(u.i.Others))
		m.Leader(u)
	}
	if !u.front.Alive() {
		u.front.Again()
		u.front.WaitReady()
	}
}
