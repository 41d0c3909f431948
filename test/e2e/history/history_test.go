package history

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election/fence"
)

const lease = "system:admin/kube-system/l"

// tale makes a history: each line is an event, the line's number its revision and its millisecond.
//
//	lead 1.a       the Lease shows this term from now on; the Lease of range 3: lead 1.a.r3
//	divided        it shows that there are ranges
//	free           it shows none
//	gone           it is deleted
//	x 1.a          the term writes object x
//	x 1.a =v       and the value v
//	own-1-a-n +|-  an object of the term's own is created, or deleted
func tale(t *testing.T, lines ...string) []Event {
	t.Helper()
	var events []Event
	for i, line := range lines {
		words := strings.Fields(line)
		e := Event{Revision: int64(i + 1), At: at(i + 1)}
		switch words[0] {
		case "lead", "divided", "free", "gone":
			e.Key, e.lease, e.Deleted = "/registry/coordination.k8s.io/leases/"+lease, true, words[0] == "gone"
			if !e.Deleted {
				e.Shows, e.Sent = &fence.Token{Name: "l"}, e.At
			}
			switch words[0] {
			case "divided":
				e.Shows.Holder = divided
			case "lead":
				if _, err := fmt.Sscanf(words[1], "%d.%s", &e.Shows.Epoch, &e.Shows.Holder); err != nil {
					t.Fatal(err)
				}
				e.Shows.Holder, _, _ = strings.Cut(e.Shows.Holder, ".r")
			}
			if len(words) > 1 {
				e.Key = "/registry/coordination.k8s.io/leases/" + LeaseOfTerm(lease, words[1])
				e.Shows.Name = path.Base(e.Key)
			}
		default:
			e.Key = "/registry/core/configmaps/root/default/" + words[0]
			if e.Term = ownerOf(e.Key); e.Term == "" {
				e.Term = words[1]
			}
			if len(words) > 2 {
				e.Value = strings.TrimPrefix(words[2], "=")
			}
			e.Deleted = words[1] == "-"
		}
		events = append(events, e)
	}
	return events
}

var origin = time.Unix(1000, 0)

func at(ms int) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }

func TestTheJudgeFindsWhatCommittedOutsideOfItsTerm(t *testing.T) {
	for name, c := range map[string]struct {
		events                  []string
		stale, backwards, twice int
	}{
		"terms one after the other":     {[]string{"lead 1.a", "x 1.a", "lead 2.b", "x 2.b", "free", "lead 3.a", "x 3.a"}, 0, 0, 0},
		"after another leads":           {[]string{"lead 1.a", "x 1.a", "lead 2.b", "x 2.b", "x 1.a"}, 1, 1, 0},
		"after a release":               {[]string{"lead 1.a", "free", "x 1.a"}, 1, 0, 0},
		"after a deletion":              {[]string{"lead 1.a", "gone", "x 1.a"}, 1, 0, 0},
		"before it leads":               {[]string{"x 1.a", "lead 1.a"}, 1, 0, 0},
		"without ever leading":          {[]string{"lead 1.a", "x 9.z"}, 1, 0, 0},
		"on different objects":          {[]string{"lead 1.a", "lead 2.b", "x 2.b", "y 1.a"}, 1, 0, 0},
		"a deletion":                    {[]string{"lead 1.a", "own-1-a-7 +", "lead 2.b", "own-1-a-7 -"}, 1, 0, 0},
		"a deletion in time":            {[]string{"lead 1.a", "own-1-a-7 +", "own-1-a-7 -", "lead 2.b"}, 0, 0, 0},
		"a term that comes back":        {[]string{"lead 1.a", "free", "lead 1.a"}, 0, 0, 1},
		"a renewal is not another term": {[]string{"lead 1.a", "lead 1.a", "x 1.a"}, 0, 0, 0},

		"ranges, each with its terms":         {[]string{"divided", "lead 1.a.r0", "lead 1.a.r1", "x 1.a.r0", "lead 2.b.r0", "y 1.a.r1", "x 2.b.r0"}, 0, 0, 0},
		"after another leads the range":       {[]string{"divided", "lead 1.a.r0", "lead 1.a.r1", "lead 2.b.r0", "x 1.a.r0"}, 1, 0, 0},
		"a term of another range's":           {[]string{"divided", "lead 1.a.r0", "x 1.a.r1"}, 1, 0, 0},
		"a deletion by a range":               {[]string{"divided", "lead 1.a.r1", "own-1-a-r1-7 +", "lead 2.b.r1", "own-1-a-r1-7 -"}, 1, 0, 0},
		"one leader, while there are ranges":  {[]string{"lead 1.a", "x 1.a", "divided", "lead 1.a.r0", "x 1.a"}, 1, 0, 0},
		"a range, while there is one leader":  {[]string{"divided", "lead 1.a.r0", "free", "lead 2.a", "x 1.a.r0"}, 1, 0, 0},
		"from one leader to ranges, and back": {[]string{"lead 1.a", "x 1.a", "divided", "lead 1.a.r0", "y 1.a.r0", "free", "lead 3.b", "x 3.b"}, 0, 0, 0},
		"a change of the number that begins":  {[]string{"divided", "lead 1.a.r0", "divided", "y 1.a.r0"}, 0, 0, 0},
		"a range that another had":            {[]string{"divided", "lead 1.a.r0", "lead 2.b.r0", "lead 1.a.r0"}, 0, 0, 1},
	} {
		events := tale(t, c.events...)
		spans := Terms(events, lease)
		if got := Stale(events, spans); len(got) != c.stale {
			t.Errorf("%s: stale: %q, want %d", name, got, c.stale)
		}
		if got := Backwards(events, spans); len(got) != c.backwards {
			t.Errorf("%s: backwards: %q, want %d", name, got, c.backwards)
		}
		if got := Twice(spans); len(got) != c.twice {
			t.Errorf("%s: twice: %q, want %d", name, got, c.twice)
		}
	}
}

func TestTheModelIsAFencedRegister(t *testing.T) {
	events := tale(t, "lead 1.a", "r 1.a =v1", "free", "lead 2.b", "r 2.b =v2")
	write := func(term, value string, from, to int, outcome Outcome) Write {
		return Write{Register: "r", Term: term, Value: value, Call: at(from), Return: at(to), Outcome: outcome}
	}
	read := func(value string, ms int) Read {
		return Read{Register: "r", Value: value, Call: at(ms), Return: at(ms + 1)}
	}
	for name, c := range map[string]struct {
		writes []Write
		reads  []Read
		sound  bool
	}{
		"as it should be":                       {[]Write{write("1.a", "v1", 1, 3, Made), write("2.b", "v2", 4, 6, Made)}, []Read{read("v2", 7)}, true},
		"a write is refused after its term":     {[]Write{write("1.a", "v0", 8, 9, Fenced)}, nil, true},
		"a write is refused in its term":        {[]Write{write("2.b", "v0", 8, 9, Fenced)}, nil, false},
		"a write is made after its term":        {[]Write{write("1.a", "v0", 8, 9, Made)}, nil, false},
		"a stale write shows":                   {[]Write{write("1.a", "v1", 1, 20, Made), write("2.b", "v2", 4, 6, Made)}, []Read{read("v2", 7), read("v1", 9)}, false},
		"a lost answer, committed":              {[]Write{write("1.a", "v1", 1, 0, ""), write("2.b", "v2", 4, 6, Made)}, []Read{read("v2", 7)}, true},
		"a lost answer, never committed":        {[]Write{write("1.a", "v9", 1, 0, Unknown)}, nil, true},
		"a write that was told to be made, not": {[]Write{write("2.b", "v9", 6, 7, Made)}, []Read{read("", 9)}, false},
		"an old value is read":                  {[]Write{write("1.a", "v1", 1, 3, Made), write("2.b", "v2", 4, 6, Made)}, []Read{read("v1", 8)}, false},
	} {
		if _, err := Check(events, lease, c.writes, c.reads); (err == nil) != c.sound {
			t.Errorf("%s: %v, want it sound: %t", name, err, c.sound)
		}
	}
}

func TestARegisterOfARangeIsJudgedByTheLeaseOfTheRange(t *testing.T) {
	events := tale(t, "divided", "lead 1.a.r0", "lead 1.a.r1", "lead 2.b.r1")
	for term, sound := range map[string]bool{"1.a.r0": true, "1.a.r1": false} {
		_, of, _ := strings.Cut(term, ".r")
		late := Write{Register: "register-7.r" + of, Term: term, Value: "v", Call: at(8), Return: at(9), Outcome: Made}
		if checked, err := Check(events, lease, []Write{late}, nil); (err == nil) != sound {
			t.Errorf("after 1.a of range 1 has ended, %s is told that a write was made: %v, %d operations, want it sound: %t", term, err, checked, sound)
		}
	}
}

func TestATermWritesThatLeadsAndHasWrittenSince(t *testing.T) {
	for want, tales := range map[string][][]string{
		"": {
			{}, {"lead 1.a"}, {"x 1.a"}, {"lead 1.a", "x 1.a", "free"}, {"lead 1.a", "x 1.a", "gone"},
			{"lead 1.a", "x 1.a", "lead 2.b"}, {"lead 1.a", "x 1.a", "lead 2.b", "lead 2.b", "x 1.a"},
		},
		"2.b": {
			{"lead 2.b", "x 2.b"}, {"lead 2.b", "x 2.b", "lead 2.b", "lead 2.b"}, {"lead 1.a", "x 1.a", "lead 2.b", "x 2.b", "x 1.a"},
			{"lead 2.b", "own-2-b-n +"},
		},
	} {
		for _, told := range tales {
			if got := writing(tale(t, told...), lease); got != want {
				t.Errorf("%q: %q writes, want %q", told, got, want)
			}
		}
	}
}
