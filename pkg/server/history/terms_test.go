package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/status"
)

// at is a time of these tests, in seconds.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// current is a term that began then. past is one that has ended.
func current(epoch int64, began int) status.Term {
	return status.Term{Epoch: epoch, Holder: fmt.Sprintf("h%d", epoch), Replica: fmt.Sprintf("r%d", epoch), Began: at(began), Trigger: "release"}
}

func past(epoch int64, ended int, cause string) status.Term {
	return status.Term{Epoch: epoch, Holder: fmt.Sprintf("h%d", epoch), Ended: at(ended), EndCause: cause}
}

// brief is what is told, as <epoch>[:<cause>@<second>], the latest first.
func brief(told []status.Term) string {
	var out []string
	for _, term := range told {
		text := fmt.Sprint(term.Epoch)
		if !term.Ended.IsZero() {
			text += fmt.Sprintf(":%s@%d", term.EndCause, int(term.Ended.Sub(start).Seconds()))
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestTermsAreToldByTheirLeadersAndTheirSuccessors(t *testing.T) {
	of := func(term status.Term, before ...status.Term) Entry { return Entry{Term: term, Before: before} }
	for name, test := range map[string]struct {
		entries []Entry
		now     Entry
		want    string
	}{
		"nothing":                     {nil, Entry{}, ""},
		"one goes on":                 {[]Entry{of(current(1, 0))}, of(current(1, 0)), "1"},
		"one has not written yet":     {[]Entry{of(current(1, 0))}, of(current(2, 9), past(1, 8, "death")), "2 1:death@8"},
		"nobody leads":                {[]Entry{of(current(1, 0))}, of(status.Term{}, past(1, 8, "step down")), "1:step down@8"},
		"nobody leads, all is lost":   {nil, of(status.Term{}, past(1, 8, "step down")), "1:step down@8"},
		"its successor tells":         {[]Entry{of(current(1, 0)), of(current(2, 9), past(1, 8, "shutdown"))}, Entry{}, "2 1:shutdown@8"},
		"one has never written":       {[]Entry{of(current(1, 0)), of(current(3, 20), past(1, 8, "deposed"), past(2, 15, "expiry"))}, Entry{}, "3 2:expiry@15 1:deposed@8"},
		"nobody knows how it ended":   {[]Entry{of(current(1, 0)), of(current(3, 20), past(2, 15, "expiry"))}, Entry{}, "3 2:expiry@15 1"},
		"two tell of it":              {[]Entry{of(current(1, 0)), of(current(2, 9), past(1, 8, "death")), of(current(3, 20), past(1, 10, ""), past(2, 15, "expiry"))}, Entry{}, "3 2:expiry@15 1:death@8"},
		"the second knows the cause":  {[]Entry{of(current(1, 0)), of(current(2, 9), past(1, 9, "")), of(current(3, 20), past(1, 8, "fenced"))}, Entry{}, "3 2 1:fenced@8"},
		"who tells has missed some":   {[]Entry{of(current(5, 50)), of(current(7, 70), past(4, 40, "death"), past(6, 60, "death"))}, Entry{}, "7 6:death@60 5 4:death@40"},
		"epochs have begun again":     {[]Entry{of(current(7, 0)), of(current(8, 9), past(7, 8, "death")), of(current(1, 20)), of(current(2, 30), past(1, 29, "death"))}, Entry{}, "2 1:death@29 8 7:death@8"},
		"a replica that is behind":    {[]Entry{of(current(1, 0)), of(current(3, 20), past(2, 15, "expiry"))}, of(current(2, 9), past(1, 8, "death")), "3 2:expiry@15 1:death@8"},
		"one that is further behind":  {[]Entry{of(current(3, 20)), of(current(4, 30), past(3, 29, "expiry"))}, of(current(2, 9), past(1, 8, "death")), "4 3:expiry@29"},
		"an end before the beginning": {[]Entry{of(current(1, 10)), of(current(2, 20), past(1, 5, "death"))}, Entry{}, "2 1:death@10"},
		"an end after the successor":  {[]Entry{of(current(1, 0)), of(current(2, 20), past(1, 25, "death"))}, Entry{}, "2 1:death@20"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := brief(Terms(test.entries, test.now)); got != test.want {
				t.Errorf("told is %q, want %q", got, test.want)
			}
		})
	}
}

func TestAnEntryKnowsTheLastSignOfLife(t *testing.T) {
	second := election.PastTerm{Epoch: 2, Holder: "h2", Replica: "r2", Began: at(0), Ended: at(31), Renewed: at(18), Duration: 15 * time.Second}
	released := second
	released.Cause, released.Reason, released.Ended = "step down", "asked", at(19)
	overnight := second
	overnight.Renewed = at(18 - 3600)
	for name, test := range map[string]struct {
		last    election.PastTerm
		trigger election.Trigger
		want    status.Term
		gap     float64
	}{
		"it was released":               {released, election.TriggerRelease, status.Term{Ended: at(19), EndCause: "step down", EndReason: "asked"}, 11},
		"it died":                       {second, election.TriggerDeath, status.Term{Ended: at(20), EndCause: "death"}, 10},
		"nobody was there when it died": {overnight, election.TriggerExpiry, status.Term{Ended: at(18 - 3600), EndCause: "expiry"}, 3612},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEntry(0, 3, "h3", election.Takeover{Trigger: test.trigger, Symptom: at(20), Acquired: at(30)}, "r3", []election.PastTerm{{Epoch: 1, Holder: "h1"}, test.last, {Epoch: 3, Holder: "h3"}}, nil)
			if len(e.Before) != 2 {
				t.Fatalf("it knows of %+v", e.Before)
			}
			got := e.Before[1]
			if !got.Ended.Equal(test.want.Ended) || got.EndCause != test.want.EndCause || got.EndReason != test.want.EndReason || e.Gap != test.gap || e.Trigger != string(test.trigger) {
				t.Errorf("%+v after %+v", e.Term, got)
			}
		})
	}
}

// A process may lead a range again under the holder identity that it had before.
func TestAnEntryKnowsWhoCameBetweenTwoTermsOfItsHolder(t *testing.T) {
	e := newEntry(5, 3, "h1", election.Takeover{Trigger: election.TriggerRelease, Acquired: at(30)}, "r1", []election.PastTerm{
		{Epoch: 1, Holder: "h1", Ended: at(10), Cause: "step down"}, {Epoch: 2, Holder: "h2", Ended: at(29), Cause: "step down"}, {Epoch: 3, Holder: "h1", Ended: at(40)},
	}, nil)
	if len(e.Before) != 2 || e.Before[1].Holder != "h2" || e.Gap != 1 {
		t.Errorf("it knows of %+v, and a gap of %v s", e.Before, e.Gap)
	}
}

// Ranges have nothing to do with each other: epochs and holders may be the same. When there are fewer ranges, the last
// terms of the others are over.
func TestTheTermsOfEachRangeAreToldByThemselves(t *testing.T) {
	of := func(index int, term status.Term, before ...status.Term) Entry {
		term.Range, term.Holder = index, "h"
		for n := range before {
			before[n].Range, before[n].Holder = index, "h"
		}
		return Entry{Term: term, Before: before}
	}
	entries := []Entry{of(0, current(1, 0)), of(1, current(1, 1)), of(2, current(1, 2)), of(1, current(2, 9), past(1, 8, "death"))}
	tell := func(now ...Entry) (text string) {
		for _, term := range Terms(entries, now...) {
			text += fmt.Sprintf("%d/%s ", term.Range, brief([]status.Term{term}))
			if term.EndReason != "" {
				text += "(" + term.EndReason + ") "
			}
		}
		return text
	}
	if got, want := tell(of(0, current(1, 0)), of(1, current(2, 9)), of(2, current(1, 2))), "1/2 2/1 1/1:death@8 0/1 "; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if got, want := tell(of(0, current(2, 20), past(1, 19, "shutdown"))), "0/2 1/2 (the number of ranges has changed) 2/1 (the number of ranges has changed) 1/1:death@8 0/1:shutdown@19 "; got != want {
		t.Errorf("with one range, told %q, want %q", got, want)
	}
}
