package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// growth makes the histories of shards: each line is an event on the shard that it begins with.
//
//	root ws a x7 eu1 Ready        Workspace a of root is so; its uid is uid-a. "-" stands for what is not set
//	root ws a x7 eu1 Ready 20     it is being deleted since second 20
//	root ws a gone                it has gone
//	eu1 lc x7 a                   cluster x7 was made for Workspace a of shard root
//	eu1 lc x7 a 20                it is being deleted since second 20
//	eu1 lc x7 gone                it has gone
//	+root lc x7 gone              so it has with the event before, in one transaction
func growth(lines ...string) map[string][]Event {
	out, revision := map[string][]Event{}, int64(0)
	for _, line := range lines {
		line, together := strings.CutPrefix(line, "+")
		if !together {
			revision++
		}
		words := append(strings.Fields(line), "")
		shard, kind, name := words[0], words[1], words[2]
		e := Event{Revision: revision, Key: "/registry" + workspaceKeys + "root/" + name}
		if kind == "lc" {
			e.Key = "/registry" + logicalClusterKeys + name + "/cluster"
		}
		deleted := ""
		if at := words[len(words)-2]; at == "20" || at == "30" {
			deleted = fmt.Sprintf(`,"deletionTimestamp":"2026-01-01T00:00:%sZ"`, at)
		}
		switch {
		case words[3] == "gone":
			e.Deleted = true
		case kind == "ws":
			e.Object = fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":"uid-%s","labels":{"regent.dev/shard":%q}%s},"spec":{"cluster":%q},"status":{"phase":%q}}`,
				name, name, set(words[4]), deleted, set(words[3]), set(words[5]))
		default:
			owner := ""
			if shard != "root" {
				owner = "root"
			}
			e.Object = fmt.Appendf(nil, `{"metadata":{"name":"cluster","labels":{"regent.dev/owner-shard":%q}%s},"spec":{"owner":{"name":%q,"uid":"uid-%s"}}}`,
				owner, deleted, words[3], words[3])
		}
		out[shard] = append(out[shard], e)
	}
	return out
}

func set(s string) string { return strings.TrimPrefix(s, "-") }

func TestTheJudgeOfTreesFindsWhatMustNeverBe(t *testing.T) {
	const a = "root ws a x7 eu1 Ready"
	for name, c := range map[string]struct {
		lines      []string
		faults     string // what the only fault says; empty: there is none
		unfinished bool
	}{
		"made":                                       {lines: []string{"root ws a - - -", "root ws a x7 eu1 -", "eu1 lc x7 a", a}},
		"made on its own shard":                      {lines: []string{"root ws a x7 - -", "root lc x7 a", "root ws a x7 - Ready"}},
		"made, and deleted":                          {lines: []string{a, "eu1 lc x7 a", a + " 20", "eu1 lc x7 a 20", "eu1 lc x7 gone", "root ws a gone"}},
		"being deleted":                              {lines: []string{a, "eu1 lc x7 a", a + " 20", "eu1 lc x7 a 20"}, unfinished: true},
		"not assigned":                               {lines: []string{"root ws a - - -"}, unfinished: true},
		"assigned":                                   {lines: []string{"root ws a x7 eu1 -"}, unfinished: true},
		"not Ready yet":                              {lines: []string{"root ws a x7 eu1 -", "eu1 lc x7 a"}, unfinished: true},
		"made twice on a shard":                      {lines: []string{a, "eu1 lc x7 a", a + " 20", "eu1 lc x7 a 20", "eu1 lc x7 gone", "eu1 lc x7 a 20", "eu1 lc x7 gone", "root ws a gone"}, faults: "was made after"},
		"of one name on two shards":                  {lines: []string{a, "eu1 lc x7 a", "root ws b x7 us1 Ready", "us1 lc x7 b"}, faults: "was made after"},
		"two for one workspace":                      {lines: []string{a, "eu1 lc x7 a", "eu1 lc y7 a"}, faults: "which names cluster x7"},
		"on another shard":                           {lines: []string{a, "us1 lc x7 a"}, faults: "which names cluster x7 on shard eu1"},
		"for nobody":                                 {lines: []string{"eu1 lc x7 a"}, faults: "has never been"},
		"assigned anew":                              {lines: []string{a, "root ws a y7 eu1 Ready", "eu1 lc y7 a"}, faults: "had cluster x7"},
		"deleted without its owner":                  {lines: []string{a, "eu1 lc x7 a", "eu1 lc x7 a 20"}, faults: "its workspace a was not", unfinished: true},
		"deleted before its owner":                   {lines: []string{a, "eu1 lc x7 a", "eu1 lc x7 a 20", a + " 30"}, faults: "its workspace a was not", unfinished: true},
		"gone without being deleted":                 {lines: []string{a, "eu1 lc x7 a", "eu1 lc x7 gone"}, faults: "without being deleted", unfinished: true},
		"made, and gone together":                    {lines: []string{"root ws a x7 - Ready", "+root lc x7 a", "root ws a gone", "+root lc x7 gone"}},
		"gone alone, of its own shard":               {lines: []string{"root ws a x7 - Ready", "+root lc x7 a", "root lc x7 gone", "root ws a gone"}, faults: "without being deleted"},
		"gone at the same revision of another shard": {lines: []string{a, "eu1 lc x7 a", "root ws a gone", "+eu1 lc x7 gone"}, faults: "without being deleted"},
		"left by its workspace":                      {lines: []string{a, "eu1 lc x7 a", a + " 20", "root ws a gone"}, faults: "and left"},
		"the cluster of a Ready is no":               {lines: []string{a}, unfinished: true},
	} {
		t.Run(name, func(t *testing.T) {
			tree := Grow(growth(c.lines...))
			faults := tree.Faults()
			if found := slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, c.faults) }); c.faults == "" && len(faults) > 0 || c.faults != "" && !found {
				t.Errorf("faults %q, want %q", faults, c.faults)
			}
			if left := tree.Unfinished(); len(left) > 0 != c.unfinished {
				t.Errorf("unfinished %q, want that there is something: %t", left, c.unfinished)
			}
		})
	}
}
