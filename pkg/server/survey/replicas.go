package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// answer is what became of the question to a target.
type answer struct {
	target
	status.Replica
	err error
}

// census is one question to all replicas of this shard. One goroutine owns it.
type census struct {
	*Survey
	now     time.Time
	self    status.Replica
	targets map[target]bool           // without the time
	present map[string]status.Replica // by process
	faults  map[string]status.Replica // those that were named, but not found at their address
	open    int
	answer  chan answer
	// places limits the open questions. Replicas that were not seen for some time have places of their own: they
	// may all hang.
	places, oldPlaces chan struct{}
}

// askReplicas asks all replicas that this one knows, and those that they know. It returns when all have answered or ctx
// has ended.
func (s *Survey) askReplicas(ctx context.Context) status.Shard {
	self := s.Replica(ctx)
	c := &census{
		Survey: s, now: time.Now(), self: self, targets: map[target]bool{}, answer: make(chan answer), places: make(chan struct{}, mostAtOnce/2), oldPlaces: make(chan struct{}, mostAtOnce/2),
		present: map[string]status.Replica{self.Process(): self}, faults: map[string]status.Replica{},
	}
	others := s.roster.note(c.now, self)
	c.ask(ctx, append(s.roster.list(), others...))
	for c.open > 0 {
		c.take(ctx, <-c.answer)
	}
	s.lines.keepOnly(s.roster.list())
	out := c.shard()
	out.Terms = explain(s.latestTerms(ctx), out)
	return out
}

// ask asks those targets that were not asked yet.
func (c *census) ask(ctx context.Context, targets []target) {
	for _, t := range targets {
		key := target{name: t.name, instance: t.instance, url: t.url}
		if t.is(c.self) || c.targets[key] || len(c.targets) >= mostReplicas {
			continue
		}
		c.targets[key] = true
		c.open++
		patience, places := c.patience.shard, c.places
		if c.now.Sub(t.lastSeen) > recent {
			patience, places = hasty, c.oldPlaces
		}
		go func() {
			a := answer{target: t}
			select {
			case places <- struct{}{}:
				a.Replica, a.err = c.askWithin(ctx, patience, t)
				<-places
			case <-ctx.Done():
				a.err = errors.New("there was no time to ask it: many others do not answer")
			}
			c.answer <- a
		}()
	}
}

// askWithin asks one replica for itself, and gives up after a time.
func (s *Survey) askWithin(ctx context.Context, patience time.Duration, t target) (status.Replica, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.askReplica(ctx, t)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it has not answered within %v", patience)
	}
	return out, err
}

func (s *Survey) askReplica(ctx context.Context, t target) (out status.Replica, err error) {
	if err := s.lines.ask(ctx, t.url, status.ReplicaPath, &out); err != nil {
		return out, err
	}
	if out.Shard != s.cfg.Name || out.Name == "" {
		return out, fmt.Errorf("replica %q of shard %q answers there", out.Name, out.Shard)
	}
	out.URL, out.Fault = t.url, ""
	return out, nil
}

// take takes an answer, and asks those whom it names.
func (c *census) take(ctx context.Context, a answer) {
	c.open--
	if a.err != nil {
		c.noteFault(a.target, oneLine(a.err))
		return
	}
	process := a.Replica.Process()
	_, again := c.present[process]
	if !again {
		c.present[process] = a.Replica
		c.roster.noteAnswer(c.now, a.Replica)
		c.roster.leave(c.now, false, a.Replica.Left[:min(len(a.Replica.Left), mostReplicas)]...)
	}
	if process != a.process() { // a replica has started anew at the address of an old one
		c.supersede(a)
	}
	if !again {
		c.ask(ctx, c.roster.note(c.now, a.Replica))
	}
}

// supersede drops a process at whose address another one has answered, unless the Lease still shows it as the leader.
func (c *census) supersede(a answer) {
	if a.process() != leaderOf(c.self.Election, c.now).process() {
		delete(c.faults, a.process())
		c.roster.forget(a.process())
		return
	}
	fault := fmt.Sprintf("replica %s answers at its address", a.Replica.Name)
	if a.Replica.Name == a.name {
		fault = "another process of its name answers at its address: it was restarted"
	}
	c.noteFault(a.target, fault)
}

func (c *census) noteFault(t target, fault string) {
	out := status.Replica{Shard: c.cfg.Name, Name: t.name, Instance: t.instance, URL: t.url, Fault: fault}
	// of which the Lease tells, whether it lives or not
	if e := c.self.Election; t.process() != cmp.Or(e.LeaderInstance, e.Leader) {
		out.Seen = t.lastSeen
	}
	c.faults[t.process()] = out
}

// isReplaced reports whether a process that does not answer has ended, and its replica was started anew: nobody follows
// or names it any more, and another process has its name, which answers or was seen later. Processes that live at the
// same time are no replacement for each other.
func (c *census) isReplaced(r status.Replica, seen map[string]time.Time) bool {
	last := seen[r.Process()]
	if !last.Before(c.now) {
		return false
	}
	for _, other := range c.present {
		if other.Name == r.Name {
			return true
		}
	}
	for process, other := range c.faults {
		if other.Name == r.Name && seen[process].After(last) {
			return true
		}
	}
	return false
}

// shard returns what was found, ordered by name. The leader is the one of the latest epoch that anybody has seen. A
// replica that was started anew is listed once, as the process that it is now.
func (c *census) shard() status.Shard {
	out := c.cfg.Shard()
	out.Name = c.cfg.Name
	latest := c.self.Election
	for process, r := range c.present {
		delete(c.faults, process)
		if r.Election.Epoch > latest.Epoch {
			latest = r.Election
		}
	}
	if latest.Leaderless == 0 {
		out.Leader, out.LeaderInstance = latest.Leader, latest.LeaderInstance
	}
	departed, seen := c.roster.departed(c.now), c.roster.sightings()
	// the leader could not release the lease
	maps.DeleteFunc(c.faults, func(process string, r status.Replica) bool {
		return !out.LedBy(r) && (slices.Contains(departed, process) || c.isReplaced(r, seen))
	})
	all := slices.AppendSeq(slices.Collect(maps.Values(c.present)), maps.Values(c.faults))
	out.Replicas = slices.SortedFunc(slices.Values(all), func(a, b status.Replica) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Process(), b.Process()))
	})
	return out
}
