package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/regent-project/regent/pkg/server/status"
)

// Controllers writes the controllers of replicas: of each only those that it runs, unless the view is wide.
func Controllers(w io.Writer, look Look, replicas []status.Replica) error {
	if !look.IsFor() {
		return Encode(w, look.Format, replicas)
	}
	p := &page{Look: look}
	head := []string{"SHARD", "REPLICA", "CONTROLLER", "STATE", "SINCE", "QUEUE", "DONE", "SWEEP", "RESTARTS"}
	if look.wide() {
		head = append(head, "PANICS", "STALLS", "SCOPE", "FAILED", "LAST ERROR")
	}
	rows := [][]string{head}
	for _, r := range replicas {
		for _, c := range r.Controllers {
			if c.State != "stopped" || look.wide() {
				rows = append(rows, p.controller(r, c))
			}
		}
	}
	if len(rows) > 1 {
		p.table("", rows)
	}
	if !look.wide() {
		p.errors(replicas)
	}
	p.unasked(replicas)
	return p.flush(w)
}

func (p *page) controller(r status.Replica, c status.Controller) []string {
	row := []string{r.Shard, r.Name, c.Name, inRanges(c), p.ago(c.Since), fmt.Sprint(c.Users.Pending), fmt.Sprint(c.Users.Returned), lane(c.Sweep), fmt.Sprint(c.Restarts)}
	if p.wide() {
		return append(row, fmt.Sprint(c.Panics), fmt.Sprint(c.Stalls), c.Scope, p.ago(c.Failed), orDash(oneLine(c.LastError)))
	}
	return row
}

// errors writes why controllers have failed last.
func (p *page) errors(replicas []status.Replica) {
	for _, r := range replicas {
		for _, c := range r.Controllers {
			if c.LastError != "" {
				p.wrap("", fmt.Sprintf("%s of %s/%s failed %s: %s", c.Name, r.Shard, r.Name, p.ago(c.Failed), oneLine(c.LastError)))
			}
		}
	}
}

func lane(sweep status.Lane) string {
	if sweep.Running {
		return fmt.Sprintf("%d left", sweep.Pending)
	}
	return "done"
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (p *page) unasked(replicas []status.Replica) {
	for _, r := range replicas {
		if r.Fault != "" {
			p.wrap("", fmt.Sprintf("replica %s/%s does not answer: %s", r.Shard, r.Name, r.Fault))
		}
	}
}

// Controller writes all that the replicas say of one controller. Each of them has that controller only.
func Controller(w io.Writer, look Look, replicas []status.Replica) error {
	if !look.IsFor() {
		return Encode(w, look.Format, replicas)
	}
	p := &page{Look: look}
	for _, r := range replicas {
		for _, c := range r.Controllers {
			p.details(r, c)
		}
	}
	p.unasked(replicas)
	return p.flush(w)
}

// unwell writes in which ranges a controller is not well, and why.
func (p *page) unwell(ranges []status.ControllerOfRange) {
	if len(ranges) == 0 {
		return
	}
	rows := [][]string{{"RANGE", "STATE", "SINCE", "QUEUE", "RESTARTS", "FAILED", "LAST ERROR"}}
	for _, r := range ranges {
		why := oneLine(r.LastError)
		if r.HeldBy != "" {
			why = "held by " + r.HeldBy
		}
		rows = append(rows, []string{fmt.Sprint(r.Range), r.State, p.ago(r.Since), fmt.Sprint(r.Pending), fmt.Sprint(r.Restarts), p.ago(r.Failed), orDash(why)})
	}
	p.table("  ", rows)
}

// inRanges says in which of the ranges a controller is not well.
func inRanges(c status.Controller) string {
	if len(c.Ranges) == 0 {
		return c.State
	}
	var numbers []int
	for _, r := range c.Ranges {
		if r.State == c.State {
			numbers = append(numbers, r.Range)
		}
	}
	if len(numbers) == 0 {
		return c.State
	}
	return fmt.Sprintf("%s in %s", c.State, spans(numbers))
}

// lasting says in which state a controller is, and for how long if that is known.
func (p *page) lasting(c status.Controller) string {
	if c.Since.IsZero() {
		return c.State
	}
	return c.State + ", for " + span(p.Now.Sub(c.Since))
}

func (p *page) details(r status.Replica, c status.Controller) {
	if p.text.Len() > 0 {
		p.line("")
	}
	does := state(r)
	if r.Ranges == nil {
		does = orElse(r.Election.State, "no election")
	}
	p.line("%s of %s/%s (%s)", c.Name, r.Shard, r.Name, does)
	rows := [][]string{{"state:", p.lasting(c)}, {"scope:", c.Scope}}
	if c.Tolerated {
		rows = append(rows, []string{"tolerated:", "its failure does not end the term, because other replicas could not run it either"})
	}
	if c.HeldBy != "" {
		rows = append(rows, []string{"held by:", c.HeldBy + ", a logical cluster: the controller has work of no other one, and finishes none"})
	}
	if c.State != "stopped" {
		rows = append(rows,
			[]string{"queue:", fmt.Sprintf("%d pending, %d done", c.Users.Pending, c.Users.Returned)},
			[]string{"sweep:", fmt.Sprintf("%s, %d done", lane(c.Sweep), c.Sweep.Returned)})
	}
	rows = append(rows, []string{"since start:", fmt.Sprintf("%d restarts, %d panics, %d stalls", c.Restarts, c.Panics, c.Stalls)})
	if c.LastError != "" {
		rows = append(rows, []string{"last error:", oneLine(c.LastError)}, []string{"failed:", p.ago(c.Failed)})
	}
	if c.Effect != "" {
		rows = append(rows, []string{"effect:", c.Effect})
	}
	p.table("  ", rows)
	p.unwell(c.Ranges)
	if c.Stacks != "" {
		p.line("  stacks:")
		for line := range strings.Lines(c.Stacks) {
			p.line("    %s", strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    "))
		}
	}
}
