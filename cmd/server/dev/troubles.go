package dev

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// watchPeriod is the pause between two looks at what is wrong, and watchPatience how long an answer may take. A
	// replica waits for others for two seconds.
	watchPeriod, watchPatience = time.Second, 3 * time.Second
	// worthSaying is how long something must be wrong. A replica that has just been started again has less to say
	// by then.
	worthSaying = 4 * time.Second
)

// watch says what is wrong with the shards, and when it no longer is, from when the system can be used until ctx ends.
func (s *system) watch(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.up:
	}
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	troubles := troubles{}
	for {
		if of, ok := s.installation(ctx); ok {
			for _, line := range troubles.next(time.Now(), s.serious(of)) {
				s.out.say("%s", line)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// installation asks one replica after the other, leaders first, for all of them.
func (s *system) installation(ctx context.Context) (status.Installation, bool) {
	var leaders, others []*child
	for _, shard := range s.present() {
		leader, _ := shard.leading()
		for _, c := range shard.children {
			if c == leader {
				leaders = append(leaders, c)
			} else {
				others = append(others, c)
			}
		}
	}
	for _, c := range append(leaders, others...) {
		var of status.Installation
		if s.get(ctx, c, status.InstallationPath, watchPatience, &of) {
			return of, true
		}
	}
	return status.Installation{}, false
}

// serious returns the problems that a user of dev needs: none that are notices, and none of replicas whose process does
// not run, which dev has said itself. The names of replicas say of which shard they are.
func (s *system) serious(of status.Installation) []status.Problem {
	runs, ended := map[string]bool{}, map[string]bool{} // by shard, and by replica
	for _, shard := range s.shards {
		for _, c := range shard.children {
			there := c.running() != 0
			runs[shard.name], ended[c.name] = runs[shard.name] || there, !there
		}
	}
	var out []status.Problem
	for _, p := range of.Problems {
		if there, ok := runs[p.Shard]; p.Severity == status.Notice || ended[p.Replica] || ok && !there {
			continue
		}
		if p.Replica != "" {
			p.Shard = ""
		}
		out = append(out, p)
	}
	return out
}

// troubles are what was wrong at the last look, by what it is.
type troubles map[string]trouble

type trouble struct {
	since time.Time // when it was first seen
	said  bool
}

// next returns what is to be said of the problems that there are now: those that have lasted, and those that were said
// and are no more.
func (t troubles) next(now time.Time, problems []status.Problem) (lines []string) {
	there := map[string]bool{}
	for _, p := range problems {
		what := p.Kind
		if about := view.About(p); about != "" {
			what += ", " + about
		}
		there[what] = true
		one, ok := t[what]
		if !ok {
			one.since = now
		}
		if !one.said && now.Sub(one.since) >= worthSaying {
			one.said = true
			lines = append(lines, fmt.Sprintf("%s: %s: %s `regent status` says what to do", p.Severity, what, p.What))
		}
		t[what] = one
	}
	for _, what := range slices.Sorted(maps.Keys(t)) {
		if there[what] {
			continue
		}
		if t[what].said {
			lines = append(lines, "No longer: "+what)
		}
		delete(t, what)
	}
	return lines
}
