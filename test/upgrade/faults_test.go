package upgrade

import (
	"strings"
	"syscall"
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/regent-project/regent/test/e2e/harness"
)

// standby is the replica of a shard that does not lead.
func (r *rolled) standby(m *harness.ShardMember) *harness.Replica {
	r.Helper()
	leader := m.Leader(r)
	for _, one := range m.Replicas {
		if one != leader {
			return one
		}
	}
	r.Fatalf("shard %s has no standby", m.Name)
	return nil
}

// I15: a roll that is half done is given up. What runs the new version goes back in the same way, and nobody notices
// that either.
func TestNobodyNoticesARollThatIsGivenUpHalfWayI15(t *testing.T) {
	r := install(t)
	eu1, us1 := r.Others[0], r.Others[1]
	r.staysAsBefore()
	r.load.begin("up")
	r.rollFronts(newer())
	r.rollShard(eu1, newer())
	r.replace(r.standby(us1), newer())
	r.stays("half-way")
	r.load.begin("back")
	r.rollFronts(older())
	r.rollShard(us1, older())
	r.rollShard(eu1, older())
	r.stays("after")
	j := r.finish()
	j.mustNotNotice(t)
	for shard, want := range map[string]int{"eu1": 3, "us1": 1, "root": 1} {
		if j.terms[shard] != want {
			t.Errorf("shard %s: %d terms, want %d", shard, j.terms[shard], want)
		}
	}
}

// I15: amid a roll the leader of a shard, which is of the release before, is killed, and leadership goes to this
// version; then that leader is killed, and leadership goes back; and a front is killed. What was in flight may fail.
// Nothing that was acknowledged is lost, no watch misses an event, and the roll goes on.
func TestKillsAmidARollLoseNothingI15(t *testing.T) {
	r := install(t)
	eu1 := r.Others[0]
	r.staysAsBefore()
	r.load.begin("up")
	old, fresh := eu1.Leader(t), r.standby(eu1)
	r.replace(fresh, newer())

	r.load.begin("kills")
	for _, leader := range []*harness.Replica{old, fresh} {
		if now := eu1.Leader(t); now != leader {
			t.Fatalf("%s leads, want %s", now.Name(), leader.Name())
		}
		leader.Kill()
		eu1.Leader(t)
		leader.Again()
		leader.WaitReady()
		r.stepped("the death of " + leader.Name())
	}
	r.fronts[1].Kill()
	r.fronts[1].Binary = newer()
	r.fronts[1].Again()
	r.fronts[1].WaitReady()
	r.stepped("the death of a front")

	r.load.begin("on")
	r.roll(newer())
	r.stays("between")
	r.load.begin("back")
	r.roll(older())
	r.stays("after")
	j := r.finish()
	j.mustNotNotice(t, "kills")
	if j.terms["eu1"] < 4 {
		t.Errorf("shard eu1: %d terms, want one before, one after each kill, and those of the rolls", j.terms["eu1"])
	}
}

// I15: amid a roll the etcd of a shard has no space left. Reads go on, and so do all other shards. Nothing that was
// acknowledged is lost. A replica that is replaced meanwhile serves when there is space again, and the roll goes on.
func TestAnEtcdThatIsFullAmidARollLosesNothingI15(t *testing.T) {
	r := install(t)
	eu1 := r.Others[0]
	r.staysAsBefore()
	r.load.begin("up")
	r.rollFronts(newer())
	r.replace(r.standby(eu1), newer())

	r.load.begin("full")
	r.alarm(eu1, etcdpb.AlarmRequest_ACTIVATE)
	leader := eu1.Leader(t)
	leader.Signal(syscall.SIGTERM)
	t.Logf("the leader of a shard whose etcd is full ends with %d", leader.Wait())
	leader.Binary = newer()
	leader.Again()
	r.stays("full")
	r.alarm(eu1, etcdpb.AlarmRequest_DEACTIVATE)
	leader.WaitReady()
	eu1.Leader(t)
	r.stepped("the end of the alarm")

	r.load.begin("on")
	r.roll(newer())
	r.stays("between")
	r.load.begin("back")
	r.roll(older())
	r.stays("after")
	j := r.finish()
	j.mustNotNotice(t, "full")
	for fault, n := range j.phases["full"].faults {
		if !strings.Contains(fault, " on eu1: ") {
			t.Errorf("while the etcd of eu1 was full, %d: %s", n, fault)
		}
	}
	if len(j.phases["full"].faults) == 0 {
		t.Error("no write failed: the etcd was not full, and this shows nothing")
	}
}

// alarm raises an etcd's alarm about space, or takes it back. The alarm is of no member, so that etcd takes it for all.
func (r *rolled) alarm(m *harness.ShardMember, action etcdpb.AlarmRequest_AlarmAction) {
	r.Helper()
	maintenance := etcdpb.NewMaintenanceClient(m.Etcd.Client(r).ActiveConnection())
	if _, err := maintenance.Alarm(r.Context(), &etcdpb.AlarmRequest{Action: action, Alarm: etcdpb.AlarmType_NOSPACE}); err != nil {
		r.Fatal(err)
	}
}
