// Package survey asks the replicas of a shard, and the other shards of an installation, how they are doing, and puts
// the answers together. It asks only when somebody asks this replica, and never longer than two seconds.
//
//	a user ──> Installation ──> Shard of each other shard ──> Replica of each of its replicas
//	                      └──> Shard of its own           ──> Replica of each of its replicas
//
// A question for a Replica leads to no further question, and one for a Shard to none for a Shard. So there are no
// loops, also if replicas lie about their addresses. Whoever hangs, lies or is gone costs its own place in the answer
// only, which then has a Fault.
package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/status"
)

// patience is how long others may take to answer.
type patience struct {
	whole time.Duration // an answer in all
	shard time.Duration // all replicas of this shard together
	other time.Duration // one replica of another shard, which asks its own shard
	leave time.Duration // until all others have heard that this replica leaves
}

var usual = patience{whole: 2 * time.Second, shard: time.Second, other: 1300 * time.Millisecond, leave: 300 * time.Millisecond}

const (
	// maxAnswer is how long the answer of one process may be, in bytes.
	maxAnswer = 4 << 20
	// mostAtOnce is how many questions of one survey may be open.
	mostAtOnce = 16
)

// Config says what a Survey knows without asking. All functions must be quick, and may be called on any goroutine.
type Config struct {
	// Name and Root are the names of this shard and of the root shard.
	Name, Root string
	// Replica returns how this replica is doing. It ends with its context. Outline returns only its name, its
	// elections and the time.
	Replica func(context.Context) status.Replica
	Outline func() status.Replica
	// Shard returns what this replica knows of its shard: all but Leader and Replicas.
	Shard func() status.Shard
	// Terms returns the terms of this shard that are remembered. It ends with its context.
	Terms func(context.Context) (status.Terms, error)
	// Keys returns the certificate of the installation's authority, in PEM, and what signs the certificates with
	// which this shard calls, which is nil if it cannot call. Authority is the fingerprint of the shard's
	// authority; empty if any is good.
	Keys      shards.Keys
	Authority func() string
	// Others returns the names of the other shards. Ask asks one of them for a path, one replica after the other.
	Others func() []string
	Ask    func(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error)
	// Changes gets a message when this replica may know other replicas than before; nil: it never does.
	Changes <-chan struct{}
	// Leaves reports, once the context of Run has ended, whether the process ends because it was asked to. Then Run
	// tells the other replicas so.
	Leaves func() bool
	// Farewell is how long the others may take to hear it; 0: 300 ms.
	Farewell time.Duration
	// Diagnose returns what is wrong, the worst first; nil: nobody looks.
	Diagnose func(of status.Installation, now time.Time) []status.Problem
}

// Survey answers how this replica, its shard and its installation are doing. Make it with New. Its answers may be
// shared, so callers must not change them. Any goroutine may call its methods at any time.
type Survey struct {
	cfg          Config
	patience     patience
	roster       roster
	lines        lines
	replica      cache[status.Replica]
	shard        cache[status.Shard]
	installation cache[status.Installation]
	terms        cache[outcome[status.Terms]]
	past         past
}

// New returns a Survey that asks nobody yet.
func New(cfg Config) *Survey {
	patience := usual
	patience.leave = cmp.Or(cfg.Farewell, usual.leave)
	return &Survey{cfg: cfg, patience: patience, lines: lines{cfg: cfg, caller: shards.NewCaller(cfg.Keys), byURL: map[string]line{}}}
}

// lookEvery is how often Run looks at which replicas this one knows, if nothing changes.
const lookEvery = 2 * time.Second

// lookPause is how long it does not look again, whatever changes.
const lookPause = 100 * time.Millisecond

// Run remembers which replicas the shard has, until ctx ends: one that was killed is told of by those that have known
// it. It sends nothing until then. At its end it tells the other replicas that this one leaves, if it does, and closes
// the connections to them.
func (s *Survey) Run(ctx context.Context) {
	defer s.lines.close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.cfg.Leaves() {
				s.sayFarewell(context.WithoutCancel(ctx))
			}
			return
		case <-s.cfg.Changes:
		case <-tick.C:
		}
		s.roster.note(time.Now(), s.cfg.Outline())
		select { // many changes come at once, as when a replica dies that led many ranges
		case <-ctx.Done():
		case <-time.After(lookPause):
		}
	}
}

// Replica returns how this replica is doing. What it says of elections is never an answer that others got: it costs
// nothing, and whoever was listed at once would seem not to follow.
func (s *Survey) Replica(ctx context.Context) status.Replica {
	out, now := s.replica.get(ctx, s.patience.whole, s.leads(), s.cfg.Replica), s.cfg.Outline()
	out.Election, out.Electing, out.Ranges, out.Observed = now.Election, now.Electing, now.Ranges, now.Observed
	out.Left = s.roster.tellable(time.Now())
	return out
}

// Shard returns how the replicas of this shard are doing. It asks them.
func (s *Survey) Shard(ctx context.Context) status.Shard {
	return s.shard.get(ctx, s.patience.whole, s.leads(), func(ctx context.Context) status.Shard {
		ctx, cancel := context.WithTimeout(ctx, s.patience.shard)
		defer cancel()
		return s.askReplicas(ctx)
	})
}

// leads returns who leads, as this replica sees it. An answer of before somebody else led would have scripts ask the
// wrong replica.
func (s *Survey) leads() string {
	own := s.cfg.Outline()
	now := fmt.Appendf(nil, "%d %s %s", own.Election.Epoch, own.Election.Leader, own.Election.State)
	if own.Ranges != nil {
		for _, of := range own.Ranges.Ranges {
			now = fmt.Appendf(now, " %d %s %s", of.Epoch, of.Leader, of.State)
		}
	}
	return string(now)
}

// Installation returns how all shards are doing. It asks them.
func (s *Survey) Installation(ctx context.Context) status.Installation {
	return s.installation.get(ctx, s.patience.whole, s.leads(), s.askShards)
}

// askShards asks all shards, ordered by name.
func (s *Survey) askShards(ctx context.Context) status.Installation {
	names := slices.Sorted(slices.Values(append(s.cfg.Others(), s.cfg.Name)))
	self := s.Replica(ctx)
	out := status.Installation{By: self.Name, Root: s.cfg.Root, Shards: make([]status.Shard, len(names)), Triggers: status.Triggers}
	places := make(chan struct{}, mostAtOnce)
	var asking sync.WaitGroup
	for n, name := range names {
		if name == s.cfg.Name {
			asking.Go(func() { out.Shards[n] = s.Shard(ctx) })
			continue
		}
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			out.Shards[n] = s.askShard(ctx, name)
		})
	}
	asking.Wait()
	out.Observed = time.Now()
	out.Fronts = mergeFronts(self.Fronts, out.Shards, out.Observed)
	if s.cfg.Diagnose != nil {
		out.Problems = s.cfg.Diagnose(out, out.Observed)
	}
	return out
}

// mergeFronts returns fronts with when any replica last had a request of each, and the version of which they have told
// that replica or, if none, another one. Clocks that are ahead do not count.
func mergeFronts(fronts []status.Front, by []status.Shard, now time.Time) []status.Front {
	last := map[string]time.Time{}
	versions := map[string]string{}
	for _, shard := range by {
		for _, r := range shard.Replicas {
			for _, f := range r.Fronts {
				latest := f.Heard.After(last[f.Name])
				if latest {
					last[f.Name] = f.Heard
				}
				if f.Version != "" && (latest || versions[f.Name] == "") {
					versions[f.Name] = f.Version
				}
			}
		}
	}
	fronts = slices.Clone(fronts)
	for n, f := range fronts {
		fronts[n].Version = cmp.Or(versions[f.Name], f.Version)
		if at := last[f.Name]; at.After(now) {
			fronts[n].Heard = now
		} else if at.After(f.Heard) {
			fronts[n].Heard = at
		}
	}
	return fronts
}

// askShard asks another shard. What it says of others than itself does not count.
func (s *Survey) askShard(ctx context.Context, name string) status.Shard {
	body, err := s.cfg.Ask(ctx, name, status.ShardPath, s.patience.other, maxAnswer)
	var out status.Shard
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err == nil && out.Name != name {
		err = fmt.Errorf("it answers as shard %q", out.Name)
	}
	if err != nil {
		return s.past.of(name, oneLine(err))
	}
	out.Fault, out.Heard = "", time.Time{}
	s.past.note(out, time.Now())
	if out.Replicas == nil {
		out.Replicas = []status.Replica{}
	}
	for n := range out.Replicas {
		out.Replicas[n].Shard = name
	}
	return out
}

// longestFault is how long a Fault may be, in bytes.
const longestFault = 1 << 10

// oneLine returns an error as a Fault.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > longestFault {
		text = strings.ToValidUTF8(text[:longestFault], "") + "..."
	}
	return text
}
