package upgrade

import (
	"syscall"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I15: the members of a shard's etcd are replaced by those of the next minor version, one after the other and its
// leader last, as etcd's documentation says. Nothing that was acknowledged is lost, no watch misses an event, and no
// term ends.
func TestARollOfEtcdLosesNothingI15(t *testing.T) {
	r := admit(t, harness.InstallOn(t, harness.EtcdConfig{Members: 3, Binary: harness.Binary("etcd-before")}), newer())
	etcd := r.Root.Etcd
	r.staysAsBefore()
	r.load.begin("up")
	leader, followers := etcd.Leader(t)
	for _, m := range append(followers, leader) {
		m.Signal(syscall.SIGTERM)
		m.Wait()
		m.Binary = harness.Binary("etcd")
		m.Start(t)
		etcd.WaitHealthy(t)
		r.stepped("member " + m.Name + " of etcd")
	}
	r.stays("after")
	j := r.finish()
	j.mustNotNotice(t, "up")
	if j.terms["root"] != 1 {
		t.Errorf("%d terms, want the one from before", j.terms["root"])
	}
}
