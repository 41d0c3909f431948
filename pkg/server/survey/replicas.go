package survey

import (
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
	present map[string]status.Replica // by name
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
		present: map[string]status.Replica{self.Name: self}, faults: map[string]status.Replica{},
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
		key := target{name: t.name, url: t.url}
		if t.name == c.self.Name || c.targets[key] || len(c.targets) >= mostReplicas {
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
	if _, again := c.present[a.Replica.Name]; again {
		if a.Replica.Name != a.name { // a replica has started anew at the address of an old one
			c.supersede(a)
		}
		return
	}
	c.present[a.Replica.Name] = a.Replica
	c.roster.noteAnswer(c.now, a.Replica.Name, a.url)
	c.roster.leave(c.now, false, a.Replica.Left[:min(len(a.Replica.Left), mostReplicas)]...)
	if a.Replica.Name != a.name {
		c.supersede(a)
	}
	c.ask(ctx, c.roster.note(c.now, a.Replica))
}

// supersede drops a replica at whose address another one has answered, unless the Lease still shows it as the leader.
func (c *census) supersede(a answer) {
	c.noteFault(a.target, fmt.Sprintf("replica %s answers at its address", a.Replica.Name))
	if a.name != c.self.Election.Leader {
		delete(c.faults, a.name)
		c.roster.forget(a.name)
	}
}

func (c *census) noteFault(t target, fault string) {
	c.faults[t.name] = status.Replica{Shard: c.cfg.Name, Name: t.name, URL: t.url, Fault: fault}
}

// shard returns what was found, ordered by name. The leader is the one of the latest epoch that anybody has seen.
func (c *census) shard() status.Shard {
	out := c.cfg.Shard()
	out.Name = c.cfg.Name
	latest := c.self.Election
	for name, r := range c.present {
		delete(c.faults, name)
		if r.Election.Epoch > latest.Epoch {
			latest = r.Election
		}
	}
	if latest.Leaderless == 0 {
		out.Leader = latest.Leader
	}
	for _, name := range c.roster.departedNames(c.now) {
		if name != out.Leader { // it could not release the lease
			delete(c.faults, name)
		}
	}
	all := slices.AppendSeq(slices.Collect(maps.Values(c.present)), maps.Values(c.faults))
	out.Replicas = slices.SortedFunc(slices.Values(all), func(a, b status.Replica) int { return strings.Compare(a.Name, b.Name) })
	return out
}
