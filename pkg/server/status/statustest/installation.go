// Package statustest has made-up installations: one in which all is well, and one for each fault that an operator
// meets.
package statustest

import (
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Now is when all answers of this package are made.
var Now = time.Date(2026, time.November, 23, 10, 0, 0, 0, time.UTC)

// The replicas of shard root. A leads.
const (
	A = "host-a-6443"
	B = "host-b-6443"
)

// Lone returns a shard of two replicas, all of which is well. Callers may change it.
func Lone() status.Installation {
	return status.Installation{Observed: Now, By: A, Root: "root", Shards: []status.Shard{shard("root", A, B, "10.0.0")}}
}

// Divided returns a shard of two replicas that share 64 ranges, of which nobody leads two. Callers may change it.
func Divided() status.Installation {
	of := Lone()
	all := &status.Ranges{Number: 64, Wanted: 64, Replicas: []status.RangeReplica{
		{Name: A, Weight: 1, Leads: 31, Share: 32, Wants: 64}, {Name: B, Weight: 1, Leads: 31, Share: 32, Wants: 64},
	}}
	for k := range all.Number {
		all.Ranges = append(all.Ranges, status.Range{Range: k, State: "standing by", Epoch: 3, Leader: [...]string{A, B}[k/4%2]})
	}
	for k := range 2 {
		all.Ranges[40+k].Leader, all.Ranges[40+k].Leaderless = "", 7
	}
	for n, name := range []string{A, B} {
		own := *all
		own.Ranges = slices.Clone(all.Ranges)
		for k := range own.Ranges {
			if own.Ranges[k].Leader == name {
				own.Ranges[k].State = "leading"
			}
		}
		of.Shards[0].Replicas[n].Ranges = &own
	}
	return of
}

// Three returns an installation of three shards and two fronts, all of which is well. Callers may change it.
func Three() status.Installation {
	all := Lone()
	all.Shards = append(all.Shards, shard("eu1", "eu-a-6443", "eu-b-6443", "10.0.1"), shard("us1", "us-a-6443", "us-b-6443", "10.0.2"))
	for i := range all.Shards {
		for j := range all.Shards[i].Replicas {
			for _, other := range all.Shards {
				if other.Name != all.Shards[i].Name {
					r := &all.Shards[i].Replicas[j]
					r.Peers = append(r.Peers, status.Peer{Shard: other.Name, Heard: true})
				}
			}
		}
	}
	all.Fronts = []status.Front{{Name: "front-0", Heard: Now.Add(-time.Second)}, {Name: "front-1", Heard: Now.Add(-3 * time.Second)}}
	return all
}

func shard(name, leader, standby, network string) status.Shard {
	a, b := replica(name, leader, "https://"+network+".1:6443"), replica(name, standby, "https://"+network+".2:6443")
	a.Election = status.Election{
		Lease: "kube-system/regent-controllers", Mode: "lease", State: "leading", Epoch: 5, Holder: leader + "_term", Leader: leader, LeaderInstance: a.Instance,
		Since: Now.Add(-72 * time.Hour), Renewed: Now.Add(-1200 * time.Millisecond), Duration: 15, LastStepDown: "asked by admin: node maintenance",
		Standbys: []status.Standby{{Replica: standby, Instance: b.Instance, URL: b.URL, Mode: "lease"}},
	}
	b.Election = a.Election
	b.Election.State, b.Election.Standbys = "standing by", nil
	b.Election.Contact = &status.Contact{State: "alive", Heard: Now.Add(-80 * time.Millisecond), AllowedSilence: 0.8}
	for i, c := range []status.Controller{{Name: "workspace", Scope: "leader"}, {Name: "logicalcluster", Scope: "leader"}, {Name: "namespace", Scope: "leader"}, {Name: "serviceaccount", Scope: "every-replica"}} {
		c.State, c.Since = "running", Now.Add(-72*time.Hour)
		c.Users, c.Sweep = status.Lane{Running: true, Returned: uint64(100 + 10*i)}, status.Lane{Returned: uint64(1000 * i)}
		a.Controllers = append(a.Controllers, c)
		if c.Scope == "leader" {
			c.State, c.Users, c.Sweep = "stopped", status.Lane{}, status.Lane{}
		}
		b.Controllers = append(b.Controllers, c)
	}
	return status.Shard{Name: name, Clusters: 120, Leader: leader, LeaderInstance: a.Instance, Replicas: []status.Replica{a, b}, Terms: Terms(name, leader, standby).Terms}
}

// instance returns the name of the process of a replica.
func instance(replica string) string { return replica + "_1a2b3c4d" }

func replica(shard, name, url string) status.Replica {
	return status.Replica{
		Shard: shard, Name: name, Instance: instance(name), URL: url, Version: "v1.37.2+regent.1", Started: Now.Add(-240 * time.Hour), Observed: Now,
		Etcd:         []status.Member{{Endpoint: "https://etcd-0:2379", Serves: true}, {Endpoint: "https://etcd-1:2379", Serves: true}, {Endpoint: "https://etcd-2:2379", Serves: true}},
		Certificates: []status.Certificate{{Name: "authority", Expires: Now.AddDate(9, 0, 0)}, {Name: "admin", Expires: Now.AddDate(9, 0, 0)}},
	}
}

// Terms returns the history of a shard whose leader has led since three days ago.
func Terms(shard, leader, standby string) status.Terms {
	ago := func(d time.Duration) time.Time { return Now.Add(-d) }
	phases := func(detect, broken, acquire, caches, reconcile, write float64) map[string]float64 {
		return map[string]float64{"detect": detect, "break": broken, "acquire": acquire, "caches": caches, "first_reconcile": reconcile, "first_write": write}
	}
	return status.Terms{Shard: shard, Terms: []status.Term{
		{Epoch: 5, Replica: leader, Holder: leader + "_term", Began: ago(72 * time.Hour), Trigger: "release", Gap: 0.0094, Phases: phases(0.0011, 0.0007, 0.0049, 0.0024, 0.0025, 0.0051)},
		{Epoch: 4, Replica: standby, Holder: standby + "_term4", Began: ago(96 * time.Hour), Ended: ago(72 * time.Hour), EndCause: "step down", EndReason: "asked by admin: node maintenance",
			Trigger: "death", Gap: 0.0131, Phases: phases(0.0017, 0.0007, 0.0049, 0.0024, 0.0025, 0.0051)},
		{Epoch: 3, Replica: leader, Holder: leader + "_term3", Began: ago(97 * time.Hour), Ended: ago(96 * time.Hour), EndCause: "death",
			Trigger: "suspicion", Gap: 0.9123, Phases: phases(0.8, 0.1, 0.006, 0.003, 0.004, 0.0071)},
		{Epoch: 2, Replica: standby, Holder: standby + "_term2", Began: ago(120 * time.Hour), Ended: ago(97 * time.Hour), EndCause: "suspicion", Trigger: "expiry", Gap: 16.2},
		{Epoch: 1, Replica: leader, Holder: leader + "_term1", Began: ago(240 * time.Hour), Ended: ago(120 * time.Hour), EndCause: "renew deadline", EndReason: "no renewal for 10s: etcd does not answer", Trigger: "none"},
	}}
}
