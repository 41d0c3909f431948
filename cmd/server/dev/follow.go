package dev

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/status"
)

// followPeriod is the pause between two questions to one replica, after which it is said at the latest that it leads.
// followPatience is how long an answer may take.
const followPeriod, followPatience = 150 * time.Millisecond, time.Second

// get asks a child for JSON, and reports whether it has answered.
func (s *system) get(ctx context.Context, c *child, path string, patience time.Duration, into any) bool {
	if c.running() == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask.Place{Config: &rest.Config{Host: c.url}}.Get(ctx, s.client, path, into) == nil
}

// follow asks one replica of a shard how it is doing, until ctx ends. It says when the replica has begun to lead, and
// for how long nobody led before and why, once the replica has recorded that.
func (s *system) follow(ctx context.Context, of *shard, c *child) {
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	var unexplained int64 // the epoch of a term of this replica
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var r status.Replica
		if !s.get(ctx, c, status.ReplicaPath, followPatience, &r) {
			continue
		}
		switch e := r.Election; {
		case e.State != status.StateLeading || e.Trigger == "": // or the Lease shows another one's term already
			unexplained = 0
		case of.leads(c, e):
			unexplained = e.Epoch
		case unexplained != 0:
			var past status.Terms
			if s.get(ctx, c, status.TermsPath, followPatience, &past) && s.explain(past, unexplained) {
				unexplained = 0
			}
		}
	}
}

// explain says why a term began and for how long nobody led before it, and reports whether that is recorded.
func (s *system) explain(past status.Terms, epoch int64) bool {
	n := slices.IndexFunc(past.Terms, func(t status.Term) bool { return t.Range == 0 && t.Epoch == epoch })
	if n < 0 || past.Terms[n].Phases == nil {
		return false
	}
	if gap := past.Terms[n].Gap; gap > 0 {
		s.out.say("Nobody led shard %s for %v: %s", past.Shard, time.Duration(gap*float64(time.Second)).Round(time.Millisecond), status.Why(past.Terms, n))
	}
	return true
}
