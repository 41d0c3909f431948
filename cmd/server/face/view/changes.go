package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Fact is something that may change. Key says what it is of.
type Fact struct {
	Key, Text string
	// state is what counts as a change, if Text tells ages, too.
	state string
}

// Facts returns what of an installation is worth a line when it changes.
func Facts(of status.Installation) (facts []Fact) {
	for _, s := range of.Shards {
		text := "no leader is known"
		switch e, ok := leading(s); {
		case s.Fault != "":
			text = "does not answer"
		case ok:
			text = fmt.Sprintf("%s leads, epoch %d", s.Leader, e.Epoch)
		}
		facts = append(facts, Fact{Key: "shard " + s.Name, Text: text})
		for _, r := range s.Replicas {
			text := fmt.Sprintf("%s, ready: %s, controllers: %s", orDash(r.Election.State), ready(r), work(r))
			if c := r.Election.Contact; c != nil && r.Election.State != status.StateLeading {
				text += ", contact: " + c.State
			}
			if r.Fault != "" {
				text = "does not answer"
			}
			facts = append(facts, Fact{Key: fmt.Sprintf("replica %s/%s", s.Name, r.Name), Text: text})
		}
	}
	for _, p := range of.Problems {
		facts = append(facts, Fact{Key: fmt.Sprintf("problem %s %s", p.Kind, About(p)), Text: fmt.Sprintf("%s: %s", p.Severity, p.What), state: string(p.Severity)})
	}
	return facts
}

// FactsOfControllers returns what of controllers is worth a line when it changes.
func FactsOfControllers(replicas []status.Replica) (facts []Fact) {
	for _, r := range replicas {
		if r.Fault != "" {
			facts = append(facts, Fact{Key: fmt.Sprintf("replica %s/%s", r.Shard, r.Name), Text: "does not answer"})
		}
		for _, c := range r.Controllers {
			text := fmt.Sprintf("%s, %d restarts, %d panics, %d stalls", c.State, c.Restarts, c.Panics, c.Stalls)
			if c.LastError != "" {
				text += ", last error: " + oneLine(c.LastError)
			}
			facts = append(facts, Fact{Key: fmt.Sprintf("controller %s of %s/%s", c.Name, r.Shard, r.Name), Text: text})
		}
	}
	return facts
}

// FactsOfTerms returns what of a history is worth a line when it changes.
func FactsOfTerms(terms status.Terms) (facts []Fact) {
	for i := len(terms.Terms) - 1; i >= 0; i-- {
		t := terms.Terms[i]
		text := fmt.Sprintf("%s has led since %s, trigger: %s", t.Replica, stamp(t.Began), trigger(t))
		if !t.Ended.IsZero() {
			text = fmt.Sprintf("%s led for %s, ended by: %s", t.Replica, span(t.Ended.Sub(t.Began)), orDash(t.EndCause))
		}
		facts = append(facts, Fact{Key: fmt.Sprintf("shard %s, epoch %d", terms.Shard, t.Epoch), Text: text})
	}
	return facts
}

// Changes returns a line for each fact that is new, has changed, or is gone.
func Changes(at time.Time, before, after []Fact) (lines []string) {
	before, after = numbered(before), numbered(after)
	known := map[string]Fact{}
	for _, f := range before {
		known[f.Key] = f
	}
	when := at.UTC().Format(time.RFC3339)
	for _, f := range after {
		was, ok := known[f.Key]
		delete(known, f.Key)
		if !ok || was.compared() != f.compared() {
			lines = append(lines, fmt.Sprintf("%s %s: %s", when, f.Key, f.Text))
		}
	}
	for _, f := range before {
		if _, gone := known[f.Key]; gone {
			lines = append(lines, fmt.Sprintf("%s %s: gone", when, f.Key))
		}
	}
	return lines
}

// numbered tells facts of one key apart: two replicas may have one name.
func numbered(facts []Fact) []Fact {
	facts = slices.Clone(facts)
	number := map[string]int{}
	for i, f := range facts {
		if number[f.Key]++; number[f.Key] > 1 {
			facts[i].Key = fmt.Sprintf("%s (%d)", f.Key, number[f.Key])
		}
	}
	return facts
}

func (f Fact) compared() string { return orElse(f.state, f.Text) }
