package statustest

import (
	"math"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Fault is an installation in which something is wrong.
type Fault struct {
	// Name says what, in the words of the docs where these have a table of it.
	Name string
	// Kinds are the kinds of all problems that it has, the worst first.
	Kinds []string
	// Of is the installation.
	Of status.Installation
}

// Faults returns all faults of this package.
func Faults() []Fault {
	all := append(failovers(), works()...)
	all = append(all, surroundings()...)
	for _, state := range []string{"connecting", "silent", "dead", "absent", "unreachable", "refused", "untrusted", "unauthorized"} {
		all = append(all, lone("contact "+state, []string{"contact"}, func(a, b *status.Replica) {
			b.Election.Contact.State, b.Election.Contact.Heard = state, Now.Add(-20*time.Second)
		}))
	}
	return all
}

// lone returns a fault of the replicas of a lone shard. a leads until change says otherwise.
func lone(name string, kinds []string, change func(a, b *status.Replica)) Fault {
	of := Lone()
	change(&of.Shards[0].Replicas[0], &of.Shards[0].Replicas[1])
	return Fault{name, kinds, of}
}

// away has a replica not answer, and the other one be asked.
func away(of *status.Installation, index int, fault string) {
	r := &of.Shards[0].Replicas[index]
	of.By = of.Shards[0].Replicas[1-index].Name
	*r = status.Replica{Shard: r.Shard, Name: r.Name, Instance: r.Instance, URL: r.URL, Fault: fault}
}

// failovers are the lines of docs/FAILOVER.md's first table, as they look while nobody has succeeded yet, and what else
// keeps a shard from being led.
func failovers() []Fault {
	standing := func(e *status.Election, leaderless float64, last string) {
		e.State, e.Holder, e.Leader, e.LeaderInstance, e.Leaderless, e.LastStepDown, e.Contact, e.Standbys = "standing by", "", "", "", leaderless, last, &status.Contact{State: "idle"}, nil
	}
	nobody := func(name string, leaderless float64, last string) Fault {
		f := lone(name, []string{"no-leader"}, func(a, b *status.Replica) {
			standing(&a.Election, leaderless, last)
			standing(&b.Election, leaderless, last)
		})
		f.Of.Shards[0].Leader, f.Of.Shards[0].LeaderInstance = "", ""
		return f
	}
	gone := func(name, fault, contact string, kinds ...string) Fault {
		f := Fault{name, kinds, Lone()}
		away(&f.Of, 0, fault)
		f.Of.Shards[0].Replicas[1].Election.Contact = &status.Contact{State: contact, Heard: Now.Add(-900 * time.Millisecond), AllowedSilence: 0.8}
		return f
	}
	deleted := nobody("the Lease is deleted, or its holder cleared", 0.02, "")
	for i := range deleted.Of.Shards[0].Replicas {
		e := &deleted.Of.Shards[0].Replicas[i].Election
		*e = status.Election{Lease: e.Lease, Mode: "lease", State: "campaigning", Leaderless: 0.02}
	}
	noEtcd := nobody("nobody can reach etcd", 0, "")
	noEtcd.Kinds = []string{"not-ready", "renewal-late", "not-ready"}
	for i := range noEtcd.Of.Shards[0].Replicas {
		r := &noEtcd.Of.Shards[0].Replicas[i]
		r.Election = Lone().Shards[0].Replicas[i].Election
		r.Election.Renewed = Now.Add(-9 * time.Second)
		r.NotReady = []status.Check{{Name: "etcd", Error: "https://etcd-0:2379 does not answer: connection refused"}}
	}
	noEtcd.Of.Shards[0].Leader, noEtcd.Of.Shards[0].LeaderInstance = A, instance(A)
	noEtcd.Kinds = []string{"not-ready", "not-ready", "renewal-late"}
	expired := gone("none of this can be seen", "no answer in 2s", "unreachable", "no-leader", "replica-silent", "contact")
	expired.Of.Shards[0].Replicas[1].Election.Leaderless = 4
	back := gone("the leader's process dies and is back under its name, and nobody has succeeded it", "another process of its name answers at its address: it was restarted", "dead", "replica-silent", "contact")
	back.Of.Shards[0].Replicas[1].Name, back.Of.By = A, A
	back.Of.Shards[0].Replicas[1].Instance = A + "_99999999"
	released := nobody("the leader releases: SIGTERM, a step down, a rolling update", 0.004, "asked by admin: node maintenance")
	return []Fault{
		released, deleted, noEtcd, expired, back,
		gone("the leader's process dies, whatever of", "connection refused", "dead", "replica-silent", "contact"),
		lone("the leader cannot renew, and a standby could", []string{"renewal-late"}, func(a, b *status.Replica) {
			a.Election.Renewed, b.Election.Renewed = Now.Add(-6*time.Second), Now.Add(-6*time.Second)
		}),
		gone("the leader hangs, is paused, or cut off", "no answer in 2s", "silent", "replica-silent", "contact"),
		gone("the leader's machine loses its power", "no route to host", "silent", "replica-silent", "contact"),
		nobody("every replica steps down for its own controllers", 47, "controllers failed: workspace: too many errors: cannot read the template"),
		lone("the lease has expired, and its holder says that it leads", []string{"renewal-late"}, func(a, _ *status.Replica) { a.Election.Renewed = Now.Add(-40 * time.Second) }),
		lone("two replicas lead", []string{"two-leaders"}, func(_, b *status.Replica) {
			b.Election.State, b.Election.Epoch, b.Election.Contact = "leading", 6, nil
		}),
		lone("two replicas lead without election", []string{"two-leaders"}, func(a, b *status.Replica) {
			a.Election, b.Election = status.Election{State: "leading"}, status.Election{State: "leading"}
		}),
		unaccounted(), foreign(),
		lone("no epoch is left", []string{"no-epoch-left"}, func(a, b *status.Replica) { a.Election.Epoch, b.Election.Epoch = math.MaxInt32, math.MaxInt32 }),
		lone("a replica has another mode", []string{"other-mode"}, func(_, b *status.Replica) { b.Election.Mode, b.Election.OtherMode = "for-life", true }),
		lone("a replica cannot keep its candidate", []string{"cannot-lead"}, func(_, b *status.Replica) {
			b.Election.CannotLead = "create the LeaseCandidate: leasecandidates.coordination.k8s.io is forbidden"
		}),
		lone("nobody elects", []string{"no-elector"}, func(a, b *status.Replica) {
			e := &status.Election{Lease: "kube-system/regent-elections", Mode: "lease", State: "standing by", Leaderless: 33}
			a.Electing, b.Electing, a.Election.Mode, b.Election.Mode = e, e, "coordinated", "coordinated"
		}),
		lone("no replica follows the leader", []string{"no-standbys"}, func(a, _ *status.Replica) { a.Election.Standbys = nil }),
		flapping(),
	}
}

func unaccounted() Fault {
	f := lone("the holder for life may be dead", []string{"no-leader", "unaccounted", "replica-silent"}, func(_, b *status.Replica) {
		b.Election.Mode, b.Election.Unaccounted, b.Election.Leaderless = "for-life", true, 95
		b.Election.Renewed, b.Election.Duration = time.Time{}, 0
		b.Election.Contact = &status.Contact{State: "idle"}
	})
	away(&f.Of, 0, "no route to host")
	return f
}

func foreign() Fault {
	f := lone("a stranger holds the lease and may be dead", []string{"no-leader", "unaccounted"}, func(a, b *status.Replica) {
		for _, r := range []*status.Replica{a, b} {
			r.Election = status.Election{Lease: "kube-system/regent-controllers", Mode: "lease", State: "standing by", Epoch: 9, Holder: "someone", Duration: 3600, Leaderless: 61, Unaccounted: true}
		}
	})
	f.Of.Shards[0].Leader, f.Of.Shards[0].LeaderInstance = "", ""
	return f
}

func flapping() Fault {
	f := Fault{"leaders do not last", []string{"flapping"}, Lone()}
	var terms []status.Term
	for i := range 5 {
		terms = append(terms, status.Term{Epoch: int64(9 - i), Replica: []string{A, B}[i%2], Began: Now.Add(-time.Duration(1+2*i) * time.Minute), Trigger: []string{"suspicion", "expiry"}[i%2]})
	}
	f.Of.Shards[0].Terms = terms
	return f
}
