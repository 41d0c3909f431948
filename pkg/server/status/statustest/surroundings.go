package statustest

import (
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// surroundings are faults of what a shard stands on, and of whole replicas and shards.
func surroundings() []Fault {
	three := func(name string, kinds []string, change func(*status.Installation)) Fault {
		f := Fault{name, kinds, Three()}
		change(&f.Of)
		return f
	}
	standbyAway := Fault{"a standby does not answer", []string{"replica-silent"}, Lone()}
	away(&standbyAway.Of, 1, "connection refused")
	standbyAway.Of.Shards[0].Replicas[0].Election.Standbys = nil
	return []Fault{
		standbyAway,
		three("a shard does not answer", []string{"shard-silent"}, func(i *status.Installation) {
			i.Shards[1] = status.Shard{Name: "eu1", Fault: "none of its replicas answers: dial tcp 10.0.1.1:6443: connection refused"}
			for _, s := range []int{0, 2} {
				for r := range i.Shards[s].Replicas {
					for p := range i.Shards[s].Replicas[r].Peers {
						peer := &i.Shards[s].Replicas[r].Peers[p]
						peer.Heard = peer.Shard != "eu1"
					}
				}
			}
		}),
		three("a shard does not hear another one", []string{"peer-silent"}, func(i *status.Installation) {
			i.Shards[2].Replicas[0].Peers[1].Heard, i.Shards[2].Replicas[1].Peers[1].Heard = false, false
		}),
		three("no replica of a shard answers", []string{"replica-silent", "replica-silent"}, func(i *status.Installation) {
			for r := range i.Shards[2].Replicas {
				i.Shards[2].Replicas[r].Fault = "connection refused"
			}
		}),
		three("a shard is full", []string{"shard-full"}, func(i *status.Installation) { i.Shards[1].Capacity = 120 }),
		three("a shard is nearly full", []string{"shard-full"}, func(i *status.Installation) { i.Shards[1].Capacity = 130 }),
		three("what has moved away is not removed", []string{"moved"}, func(i *status.Installation) {
			i.Shards[1].Moves = &status.Moves{Number: 23, Oldest: []status.Move{
				{Cluster: "2abc", Path: "root:team", State: status.HasLeft, Shard: "us1", Since: Now.Add(-time.Hour)},
				{Cluster: "2abd", State: status.HasLeft, Shard: "us1", Since: Now.Add(-20 * time.Minute)},
				{Cluster: "2abe", Path: "root:more", State: status.Comes, Shard: "root", Since: Now.Add(-time.Minute)},
				{Cluster: "2abf", Path: "root:file", State: status.Comes, Since: Now.Add(-30 * time.Second)},
				{Cluster: "2abg", Path: "root:next", State: status.Leaves, Shard: "us1", Since: Now.Add(-time.Second)},
			}}
		}),
		{"a shard has one replica", []string{"single-replica"}, func() status.Installation {
			i := Lone()
			i.Shards[0].Replicas = i.Shards[0].Replicas[:1]
			i.Shards[0].Replicas[0].Election.Standbys = nil
			return i
		}()},
		lone("two replicas have one name", []string{"same-name"}, func(_, b *status.Replica) { b.Name, b.Instance = A, A+"_5e6f7a8b" }),
		lone("a replica is not ready", []string{"not-ready"}, func(_, b *status.Replica) {
			b.NotReady = []status.Check{{Name: "etcd-history", Error: "etcd is at revision 120, and was at 4711"}, {Name: "informers", Error: "workspaces is not synced"}}
		}),
		lone("one member of etcd hangs, dies, is slow or is cut off", []string{"etcd-member"}, func(a, b *status.Replica) { a.Etcd[1].Serves, b.Etcd[1].Serves = false, false }),
		lone("something stored is no object", []string{"set-aside", "set-aside"}, func(a, b *status.Replica) {
			a.Aside = []status.Aside{{Resource: "configmaps", Number: 1, ModRevision: 4711}, {Resource: "secrets", Number: 3, ModRevision: 4812}}
			b.Aside = a.Aside
		}),
		lone("a certificate expires in a month", []string{"certificate"}, func(a, b *status.Replica) {
			a.Certificates[1].Expires = Now.AddDate(0, 0, 20)
			b.Certificates[1].Expires = Now.AddDate(0, 0, 20)
		}),
		lone("the authority expires in a week", []string{"certificate"}, func(a, b *status.Replica) {
			a.Certificates[0].Expires = Now.AddDate(0, 0, 5)
			b.Certificates[0].Expires = Now.AddDate(0, 0, 5)
		}),
		lone("a certificate has expired", []string{"certificate"}, func(_, b *status.Replica) { b.Certificates[1].Expires = Now.Add(-time.Minute) }),
		lone("versions differ", []string{"versions"}, func(_, b *status.Replica) { b.Version = "v1.37.2+regent.2" }),
		lone("minor versions are left out", []string{"skew", "versions"}, func(a, b *status.Replica) {
			a.Version, b.Version = "v1.37.2+regent.v0.1.3", "v1.37.2+regent.v0.3.0"
		}),
		lone("a clock is ahead", []string{"clock"}, func(_, b *status.Replica) { b.Observed = Now.Add(2500 * time.Millisecond) }),
		lone("a clock is behind", []string{"clock"}, func(_, b *status.Replica) { b.Observed = Now.Add(-time.Minute) }),
		{"the clock of whoever answers is ahead", []string{"clock"}, ahead()},
	}
}

// ahead is an installation all of whose clocks agree, and differ from the asker's.
func ahead() status.Installation {
	i := Lone()
	i.Observed = Now.Add(time.Hour)
	for n := range i.Shards[0].Replicas {
		i.Shards[0].Replicas[n].Observed = i.Observed
		e := &i.Shards[0].Replicas[n].Election
		e.Renewed = i.Observed.Add(-time.Second)
	}
	return i
}
