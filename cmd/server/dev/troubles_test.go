package dev

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
)

func TestAProblemIsSaidOnceItLastsAndOnceItIsOver(t *testing.T) {
	problem := status.Problem{Severity: status.Critical, Shard: "root", Kind: "no-leader", What: "Nobody leads shard root."}
	said := "critical: no-leader, root: Nobody leads shard root. `regent status` says what to do"
	is, none := []status.Problem{problem}, []status.Problem{}
	for name, looks := range map[string][]struct {
		after    time.Duration
		problems []status.Problem
		want     []string
	}{
		"it lasts": {
			{0, is, nil}, {worthSaying - time.Second, is, nil}, {worthSaying, is, []string{said}}, {worthSaying + time.Minute, is, nil},
			{worthSaying + time.Hour, none, []string{"No longer: no-leader, root"}}, {worthSaying + 2*time.Hour, none, nil},
		},
		"it is over at once":           {{0, is, nil}, {time.Second, none, nil}, {worthSaying, is, nil}},
		"one is over, and another not": {{0, is, nil}, {worthSaying, append(is, status.Problem{Kind: "clock"}), []string{said}}},
	} {
		t.Run(name, func(t *testing.T) {
			troubles, now := troubles{}, time.Now()
			for _, look := range looks {
				if got := troubles.next(now.Add(look.after), look.problems); !slices.Equal(got, look.want) {
					t.Errorf("after %v it says %q, want %q", look.after, got, look.want)
				}
			}
		})
	}
}

func TestOfWhatDevHasSaidItselfAndOfNoticesNothingIsSaid(t *testing.T) {
	runs, ended := &child{name: "replica-0", url: "https://a", pid: 1}, &child{name: "replica-1", url: "https://b"}
	s := &system{shards: []*shard{{name: "root", children: []*child{runs, ended}}, {name: "shard-1", children: []*child{{name: "shard-1-replica-0", url: "https://c"}}}}}
	of := status.Installation{
		Shards: []status.Shard{{Name: "root", Replicas: []status.Replica{
			{Name: "replica-0", URL: "https://a"}, {Name: "replica-1", URL: "https://b", Fault: "connection refused"},
		}}},
		Problems: []status.Problem{
			{Severity: status.Warning, Shard: "root", Replica: "replica-0", Kind: "not-ready", What: "Replica replica-0 is not ready."},
			{Severity: status.Warning, Shard: "root", Replica: "replica-1", Kind: "replica-silent"},
			{Severity: status.Critical, Shard: "shard-1", Kind: "shard-silent"},
			{Severity: status.Notice, Shard: "root", Kind: "single-replica"},
			{Severity: status.Warning, Kind: "clock"},
		},
	}
	var got []string
	for _, p := range s.serious(of) {
		got = append(got, strings.TrimSpace(p.Kind+" "+view.About(p)+" "+p.What))
	}
	if want := []string{"not-ready replica-0 Replica replica-0 is not ready.", "clock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
