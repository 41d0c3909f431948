package statustest

import (
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// works are faults of controllers.
func works() []Fault {
	quarantined := lone("a controller does not stop", []string{"quarantined", "controller-late"}, func(a, b *status.Replica) {
		b.Election.State, b.Election.Standbys = "leading", []status.Standby{{Replica: a.Name, Instance: a.Instance, Mode: "lease"}}
		b.Election.Epoch, b.Election.Contact, b.Election.Since = 6, nil, Now.Add(-50*time.Second)
		a.Election.State, a.Election.Standbys, a.Election.Epoch, a.Election.Leader, a.Election.LeaderInstance = "quarantined", nil, 6, B, b.Instance
		a.Election.Contact = &status.Contact{State: "alive", Heard: Now, AllowedSilence: 0.8}
		of(a, "workspace", func(c *status.Controller) {
			c.State, c.Since, c.Stacks = "late", Now.Add(-66*time.Second), "goroutine 118 [chan receive, 1 minutes]:\nexample.invalid/workspace.(*Controller).reconcile(...)\n\tworkspace.go:120 +0x1c\n"
		})
	})
	quarantined.Of.Shards[0].Leader, quarantined.Of.Shards[0].LeaderInstance = B, instance(B)
	return []Fault{
		quarantined,
		lone("a controller fails again and again", []string{"controller-restarting"}, leaders("workspace", func(c *status.Controller) {
			c.State, c.Since, c.Restarts, c.LastError, c.Failed, c.Effect = "restarting", Now.Add(-time.Second), 3, "cannot read the template: unexpected end of JSON input", Now.Add(-time.Second), "restart"
		})),
		lone("a controller stalls", []string{"controller-stalled"}, leaders("namespace", func(c *status.Controller) {
			c.State, c.Since, c.Stalls = "stalled", Now.Add(-31*time.Second), 1
			c.Users.Pending = 17
			c.Stacks = "goroutine 245 [select, 1 minutes]:\nexample.invalid/namespace.(*Controller).finalize(...)\n\tnamespace.go:88 +0x2f\n"
		})),
		lone("one cluster holds a controller", []string{"controller-held"}, leaders("logicalcluster", func(c *status.Controller) {
			c.HeldBy, c.Users.Pending = "1dl5b0qb6gbm0a2n", 17
			c.Stacks = "goroutine 245 [runnable]:\nexample.invalid/logicalcluster.(*controller).reconcile(...)\n\treconcile.go:88 +0x2f\n"
		})),
		lone("a controller has failed", []string{"controller-failed"}, leaders("workspace", func(c *status.Controller) {
			c.State, c.Since, c.Restarts, c.LastError, c.Failed = "failed", Now.Add(-4*time.Second), 6, "cannot read the template", Now.Add(-4*time.Second)
		})),
		lone("a controller fails on every replica", []string{"controller-failed"}, leaders("workspace", func(c *status.Controller) {
			c.State, c.Since, c.Tolerated, c.LastError, c.Failed = "failed", Now.Add(-400*time.Second), true, "cannot read the template", Now.Add(-20*time.Second)
		})),
		lone("a controller waits", []string{"controller-waiting"}, leaders("logicalcluster", func(c *status.Controller) { c.State, c.Since = "waiting", Now.Add(-200*time.Second) })),
		lone("a controller works between its failures", []string{"controller-restarting"}, leaders("workspace", func(c *status.Controller) {
			c.Restarts, c.Stalls, c.LastError, c.Failed, c.Effect = 7, 7, "stalled: it holds 1 items and has returned none for 3s", Now.Add(-2*time.Second), "restart"
		})),
		endedATerm(),
		lone("a controller failed a while ago", []string{"controller-restarting"}, leaders("workspace", func(c *status.Controller) {
			c.Restarts, c.Panics, c.LastError, c.Failed = 1, 1, "panic: assignment to entry in nil map", Now.Add(-20*time.Minute)
		})),
	}
}

// leaders changes a controller of the leader.
func leaders(name string, change func(*status.Controller)) func(a, b *status.Replica) {
	return func(a, _ *status.Replica) { of(a, name, change) }
}

func of(r *status.Replica, name string, change func(*status.Controller)) {
	for i := range r.Controllers {
		if r.Controllers[i].Name == name {
			change(&r.Controllers[i])
		}
	}
}

// endedATerm is a shard whose leader has changed because a controller failed.
func endedATerm() Fault {
	f := lone("a controller has ended a term", []string{"controller-failed"}, func(_, b *status.Replica) {
		of(b, "workspace", func(c *status.Controller) {
			c.State, c.Since, c.LastError, c.Failed = "stopped", Now.Add(-20*time.Second), "cannot read the template", Now.Add(-20*time.Second)
		})
	})
	for i, term := range f.Of.Shards[0].Terms {
		if term.Replica == B {
			f.Of.Shards[0].Terms[i].EndCause, f.Of.Shards[0].Terms[i].EndReason, f.Of.Shards[0].Terms[i].Ended = "failed", `controller "workspace": cannot read the template`, Now.Add(-20*time.Second)
		}
	}
	return f
}
