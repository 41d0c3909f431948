package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/regent-project/regent/pkg/server/status"
)

// shares says how many ranges there are, who leads how many, and which nobody leads.
func (p *page) shares(of status.Ranges) string {
	if len(of.Ranges) == 0 {
		return p.bad("nobody leads") + ": " + orElse(of.Waits, "it is not known how many ranges there are")
	}
	count, nobody := map[string]int{}, []int(nil)
	var order []string
	for _, r := range of.Ranges {
		if r.Leader == "" {
			nobody = append(nobody, r.Range)
			continue
		}
		if count[r.Leader] == 0 {
			order = append(order, r.Leader)
		}
		count[r.Leader]++
	}
	slices.Sort(order)
	var words []string
	for _, name := range order {
		words = append(words, fmt.Sprintf("%s leads %d", name, count[name]))
	}
	if len(nobody) > 0 {
		words = append(words, p.bad("nobody leads ")+spans(nobody))
	}
	text := fmt.Sprintf("%d ranges: %s", len(of.Ranges), strings.Join(words, ", "))
	for _, r := range of.Replicas {
		if r.Wants != of.Number {
			text += fmt.Sprintf("; %s wants %d: the number changes when all want the same", r.Name, r.Wants)
		}
	}
	return text
}

// ledBy returns the ranges that a replica says it leads.
func ledBy(r status.Replica) (all []int) {
	if r.Ranges == nil {
		return nil
	}
	for _, of := range r.Ranges.Ranges {
		if of.State == status.StateLeading {
			all = append(all, of.Range)
		}
	}
	return all
}

// state says what a replica does in the election.
func state(r status.Replica) string {
	switch {
	case r.Ranges == nil:
		return orDash(r.Election.State)
	case len(r.Ranges.Ranges) == 0:
		return "waits"
	}
	return fmt.Sprintf("leads %d", len(ledBy(r)))
}

// spans writes numbers that are in order as people do: 0-3, 7.
func spans(numbers []int) string {
	var words []string
	for at := 0; at < len(numbers); {
		end := at
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		if end == at {
			words = append(words, fmt.Sprint(numbers[at]))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", numbers[at], numbers[end]))
		}
		at = end + 1
	}
	return strings.Join(words, ", ")
}
