package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Installation writes an overview: shards, replicas, who leads, since when and why, and all problems.
func Installation(w io.Writer, look Look, of status.Installation) error {
	if !look.IsFor() {
		return Encode(w, look.Format, of)
	}
	p := &page{Look: look}
	for i, s := range of.Shards {
		if i > 0 {
			p.line("")
		}
		p.shard(of, s)
	}
	if len(of.Fronts) > 0 {
		p.line("")
		p.fronts(of.Fronts)
	}
	p.line("")
	p.problems(of.Problems)
	return p.flush(w)
}

func (p *page) shard(of status.Installation, s status.Shard) {
	words := []string{fmt.Sprintf("Shard %s", s.Name)}
	if len(of.Shards) > 1 && s.Name == of.Root {
		words = append(words, "root of the installation")
	}
	if s.Cordoned {
		words = append(words, "cordoned")
	}
	if s.Fault == "" {
		words = append(words, clusters(s))
	}
	p.line("%s", strings.Join(words, ", "))
	if s.Fault != "" {
		p.wrap("  ", p.bad("does not answer")+": "+s.Fault)
		return
	}
	p.wrap("  ", p.leadership(s))
	p.moves(s.Moves)
	p.replicas(s)
}

// fewMoves is how many logical clusters that move are named.
const fewMoves = 5

// moves says what comes to a shard, and what leaves it.
func (p *page) moves(of *status.Moves) {
	if of == nil {
		return
	}
	for i, m := range of.Oldest {
		if i == fewMoves && !p.wide() {
			break
		}
		text := fmt.Sprintf("%s %s", m.Name(), m.State)
		switch {
		case m.State == status.Comes && m.Shard != "":
			text += " from shard " + m.Shard
		case m.State == status.Comes:
			text += " out of a file"
		default:
			text += " for shard " + m.Shard
		}
		if !m.Since.IsZero() {
			text += " (" + span(p.Now.Sub(m.Since)) + ")"
		}
		p.wrap("  ", text)
	}
	told := len(of.Oldest)
	if !p.wide() {
		told = min(told, fewMoves)
	}
	if of.Number > told {
		p.line("  and %d more come or go", of.Number-told)
	}
}

func clusters(s status.Shard) string {
	if s.Capacity > 0 {
		return fmt.Sprintf("%d of %d logical clusters", s.Clusters, s.Capacity)
	}
	return fmt.Sprintf("%d logical clusters", s.Clusters)
}

// leadership says who leads, since when and why.
func (p *page) leadership(s status.Shard) string {
	if r := s.Divided(); r != nil {
		return p.shares(*r)
	}
	e, ok := leading(s)
	if !ok {
		longest := time.Duration(0)
		for _, r := range s.Replicas {
			longest = max(longest, seconds(r.Election.Leaderless))
		}
		if longest > 0 {
			return p.bad("no leader is known") + ", for " + span(longest)
		}
		return p.bad("no leader is known")
	}
	if e.Since.IsZero() {
		return s.Leader + " leads, without an election"
	}
	text := s.Leader
	if slices.ContainsFunc(s.Replicas, func(r status.Replica) bool { return s.LedBy(r) && r.Fault != "" }) {
		text += fmt.Sprintf(" holds the lease, and %s; it", p.bad("does not answer"))
	}
	text += fmt.Sprintf(" has led for %s, epoch %d", span(p.Now.Sub(e.Since)), e.Epoch)
	why := ""
	for i, t := range s.Terms {
		if t.Range == 0 && t.Epoch == e.Epoch {
			why = status.Why(s.Terms, i)
		}
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// leading returns what the leader says of its election, or what its standbys say if it cannot be asked.
func leading(s status.Shard) (status.Election, bool) {
	if s.Leader == "" {
		return status.Election{}, false
	}
	for _, r := range s.Replicas {
		if s.LedBy(r) && r.Fault == "" {
			return r.Election, true
		}
	}
	for _, r := range s.Replicas {
		if r.Election.Leader == s.Leader && r.Fault == "" {
			return r.Election, true
		}
	}
	return status.Election{}, true
}

func (p *page) replicas(s status.Shard) {
	head := []string{"REPLICA", "STATE", "READY", "CONTACT", "CONTROLLERS", "SWEEP", "STARTED"}
	if p.wide() {
		head = append(head, "VERSION", "MODE", "PRIORITY", "URL")
	}
	divided := p.wide() && s.Divided() != nil
	if divided {
		head = append(head, "LEADS RANGES")
	}
	rows := [][]string{head}
	for _, r := range s.Replicas {
		row := []string{r.Name, state(r), ready(r), contact(r), work(r), sweep(r), p.ago(r.Started)}
		if r.Fault != "" {
			row = []string{r.Name, "does not answer", "-", "-", "-", "-", "-"}
		}
		if p.wide() {
			row = append(row, orDash(r.Version), orDash(r.Election.Mode), fmt.Sprint(r.Election.Priority), orDash(r.URL))
		}
		if divided {
			row = append(row, orDash(spans(ledBy(r))))
		}
		rows = append(rows, row)
	}
	p.table("  ", rows)
}

func ready(r status.Replica) string {
	if len(r.NotReady) == 0 {
		return "yes"
	}
	if n := len(r.NotReady); n > 1 {
		return fmt.Sprintf("no: %d checks", n)
	}
	return "no: " + r.NotReady[0].Name
}

// contact says in which state a standby's contact with the leader is, and of a leader how many follow it.
func contact(r status.Replica) string {
	e := r.Election
	switch {
	case e.State == status.StateLeading:
		return fmt.Sprintf("%d follow", len(e.Standbys))
	case len(ledBy(r)) > 0:
		return "-" // it leads, and follows others
	case e.Contact == nil:
		return "-"
	case e.Contact.State == "alive" || e.Contact.Heard.IsZero() || r.Observed.IsZero():
		return e.Contact.State
	}
	return fmt.Sprintf("%s (%s)", e.Contact.State, span(r.Observed.Sub(e.Contact.Heard)))
}

// states are those of controllers, the worst first. Those that are stopped, because the replica does not lead, count
// for nothing.
var states = []string{"late", "failed", "stalled", "restarting", "disabled", "waiting", "starting", "running"}

// work sums a replica's controllers up.
func work(r status.Replica) string {
	counts := map[string]int{}
	for _, c := range r.Controllers {
		counts[c.State]++
	}
	var words []string
	for _, state := range states {
		if n := counts[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return orDash(strings.Join(words, ", "))
}

// sweep says how far the passes over all objects are with which controllers begin.
func sweep(r status.Replica) string {
	if !slices.ContainsFunc(r.Controllers, func(c status.Controller) bool { return c.State != "stopped" }) {
		return "-"
	}
	running, pending := 0, 0
	for _, c := range r.Controllers {
		if c.Sweep.Running {
			running++
			pending += c.Sweep.Pending
		}
	}
	if running == 0 {
		return "done"
	}
	return fmt.Sprintf("%d, %d keys left", running, pending)
}

func (p *page) fronts(fronts []status.Front) {
	rows := [][]string{{"FRONT", "HEARD"}}
	for _, f := range fronts {
		rows = append(rows, []string{f.Name, p.ago(f.Heard)})
	}
	p.table("", rows)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
