package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// symptoms are the faults of docs/FAILOVER.md, in its order, and further ones of a leader, of its controllers and of
// etcd.
var symptoms = []symptom{
	{
		fault: "the leader releases: SIGTERM", kinds: []string{"single-replica"}, not: []string{"replica-silent"}, term: "shutdown",
		why: "the previous leader gave the lease up (", says: []string{"Start a second one, on another machine and the same etcd"},
		do: func(p *patient) func() {
			p.leader.Signal(syscall.SIGTERM)
			p.leader.Wait()
			return p.revive(p.leader)
		},
	},
	{
		fault: "a standby is stopped in order", kinds: []string{"single-replica"}, not: []string{"replica-silent"},
		says: []string{"Start a second one"},
		do: func(p *patient) func() {
			p.asked = p.leader
			p.standby.Signal(syscall.SIGTERM)
			p.standby.Wait()
			return p.revive(p.standby)
		},
	},
	{
		fault: "the leader releases: a step down", why: "to see the reason", term: "to see the reason", not: []string{"replica-silent", "no-leader"},
		do: func(p *patient) func() {
			p.leader.StepDown("to see the reason")
			harness.Eventually(p.T, "the standby leads", p.standby.Leads)
			return nil
		},
	},
	{
		fault: "the Lease is deleted", why: "the Lease was deleted or cleared", term: "deletion", not: []string{"replica-silent", "no-leader"},
		do: func(p *patient) func() {
			if err := p.leader.Leases().Delete(p.Context(), harness.LeaseName, metav1.DeleteOptions{}); err != nil {
				p.Fatal(err)
			}
			return nil
		},
	},
	{
		fault: "the leader's process dies", kinds: []string{"replica-silent"}, term: "death",
		why: "the previous leader had died", says: []string{"does not answer", "See whether its process is running, and read its log."},
		do: func(p *patient) func() {
			p.leader.Kill()
			return p.revive(p.leader)
		},
	},
	{
		fault: "a leader that has only just begun dies", kinds: []string{"replica-silent"}, term: "death",
		why: "the previous leader had died", says: []string{"Start it if it has ended"},
		do: func(p *patient) func() {
			p.leader.StepDown("to kill its successor at once")
			// A leader whose process nobody has heard yet is succeeded when its lease expires.
			harness.Eventually(p.T, "it leads, and is heard", func() bool { return p.standby.Leads() && p.leader.Follows() })
			p.standby.Kill()
			p.asked = p.leader
			return p.revive(p.standby)
		},
	},
	{
		fault: "the leader is cut off from etcd", kinds: []string{"not-ready"}, term: "step-aside",
		why: "the previous leader could not renew the lease, and made way", says: []string{"etcd (", "Check etcd"},
		do: func(p *patient) func() {
			p.ways[p.leader].Stall()
			return p.ways[p.leader].Resume
		},
	},
	{
		fault: "the leader hangs", kinds: []string{"replica-silent"}, term: "suspicion",
		why: "the previous leader was silent", says: []string{"has not answered within", "restart it if it hangs"},
		do: func(p *patient) func() {
			p.leader.Signal(syscall.SIGSTOP)
			return func() { p.leader.Signal(syscall.SIGCONT) }
		},
	},
	{
		fault: "nobody can reach etcd", kinds: []string{"not-ready"},
		says: []string{"etcd (", "Check etcd", "etcdctl endpoint status"},
		do: func(p *patient) func() {
			p.etcd.Signal(syscall.SIGSTOP)
			return func() { p.etcd.Signal(syscall.SIGCONT) }
		},
	},
	{
		fault: "a controller stalls", kinds: []string{"controller-stalled"},
		says: []string{"Controller stalls of replica", "holds work and finishes none of it", "$ regent controllers stalls"},
		do:   func(p *patient) func() { return p.breaks(p.leader, "stalls") },
	},
	{
		fault: "a controller fails, and another replica leads", kinds: []string{"controller-failed"}, term: "so it fails",
		why: `the previous leader gave the lease up (failed: controller "fails": so it fails)`, says: []string{"Controller fails of replica", "$ regent controllers fails"},
		do: func(p *patient) func() { return p.breaks(p.leader, "fails") },
	},
	{
		fault: "a controller fails on each replica", kinds: []string{"controller-failed"},
		says: []string{"Controller fails of replica", "It is tolerated, because other replicas could not run it either", "$ regent controllers fails"},
		do: func(p *patient) func() {
			mend := []func(){p.breaks(p.leader, "fails"), p.breaks(p.standby, "fails")}
			return func() { mend[0](); mend[1]() }
		},
	},
	{
		fault: "a controller does not stop", kinds: []string{"quarantined", "controller-late"},
		says: []string{"is quarantined: work of its last term does not stop", "Late: hangs.", "$ regent controllers hangs", "Restart"},
		do: func(p *patient) func() {
			mend := p.breaks(p.leader, "hangs")
			p.leader.StepDown("to see it hang")
			return mend
		},
	},
	{
		fault: "a member of etcd is lost", kinds: []string{"etcd-member"},
		says: []string{"of etcd does not answer", "Check that member", "endpoint status"},
		do: func(p *patient) func() {
			_, followers := p.etcd.Leader(p.T)
			followers[0].Kill()
			return func() { followers[0].Start(p.T); p.etcd.WaitHealthy(p.T) }
		},
	},
	{
		fault: "etcd is slow", kinds: []string{"etcd-slow"}, onlyDoctor: true,
		says: []string{"etcd takes up to", "Look at etcd's disk", "etcdctl check perf"},
		do: func(p *patient) func() {
			each := func(delay time.Duration) {
				for _, m := range p.etcd.Members {
					m.SlowDown(p.T, delay)
				}
			}
			each(600 * time.Millisecond)
			return func() { each(0) }
		},
	},
	{
		fault: "a replica's certificates are spoilt", kinds: []string{"files-refused"}, onlyDoctor: true,
		says: []string{"cannot use pki/, and keeps the keys that it has read before", "Its log and /readyz?verbose say what is wrong"},
		do: func(p *patient) func() {
			p.asked = p.leader
			file := filepath.Join(p.standby.Root, "pki", "ca.crt")
			was, err := os.ReadFile(file)
			if err != nil {
				p.Fatal(err)
			}
			p.write(file, []byte("spoilt"))
			return func() { p.write(file, was) }
		},
	},
	{
		fault: "etcd is out of space", kinds: []string{"etcd-alarm"}, onlyDoctor: true,
		says: []string{"etcd refuses writes of replica", "(alarm NOSPACE)", "etcdctl alarm list", "etcdctl alarm disarm"},
		do: func(p *patient) func() {
			p.alarm(etcdpb.AlarmRequest_ACTIVATE)
			return func() { p.alarm(etcdpb.AlarmRequest_DEACTIVATE) }
		},
	},
}

// revive returns a function that starts a replica again, and waits for it.
func (p *patient) revive(r *harness.Replica) func() {
	return func() {
		r.Again()
		r.WaitReady()
	}
}

// alarm raises etcd's alarm about space, or takes it back. The alarm is of no member, so that etcd takes it for all.
func (p *patient) alarm(action etcdpb.AlarmRequest_AlarmAction) {
	p.Helper()
	maintenance := etcdpb.NewMaintenanceClient(p.etcd.Client(p.T).ActiveConnection())
	if _, err := maintenance.Alarm(p.Context(), &etcdpb.AlarmRequest{Action: action, Alarm: etcdpb.AlarmType_NOSPACE}); err != nil {
		p.Fatal(err)
	}
}

func (p *patient) write(file string, content []byte) {
	p.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		p.Fatal(err)
	}
}
