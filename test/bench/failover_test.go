package bench

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFailover is from the signal that ends a leader to the first committed write of the next leader's controller:
// ours, and that of programs with stock electors, in turns. It prints a table. Every failover counts.
//
// It is one run, however long: -benchtime means nothing to it, and how often what is measured is for its own flags.
func BenchmarkFailover(b *testing.B) {
	m := start(b)
	us, others := contenders(b, m)
	rounds := max(1, *peers)
	var turns []*turn
	for _, e := range []struct {
		event  string
		signal syscall.Signal
		n      int
	}{{"kill -9", syscall.SIGKILL, *kills}, {"SIGTERM", syscall.SIGTERM, *stops}} {
		turns = append(turns, &turn{who: us, signal: e.signal, n: e.n, row: row{event: e.event, name: us.name()}})
		for _, c := range others {
			turns = append(turns, &turn{who: c, signal: e.signal, n: *peers, row: row{event: e.event, name: c.name()}})
		}
	}
	defer report(b, m, turns, time.Now()) // also of a run that fails
	for round := range rounds {
		for i := range turns { // nobody is always the first
			turns[(i+round)%len(turns)].take(b, m, round, rounds)
		}
	}
}

// turn is what one contender does in a round.
type turn struct {
	who    contender
	signal syscall.Signal
	n      int // in all rounds together
	row    row
}

func (t *turn) take(b *testing.B, m *machine, round, rounds int) {
	for range share(t.n, round, rounds) {
		s := t.who.turn(b, m, t.signal)
		t.row.samples = append(t.row.samples, s)
		progress("%s, %s, %d of %d: %s, load average %.2f", t.row.event, t.row.name, len(t.row.samples), t.n, show(s.took), s.load)
	}
}

// share is how many of n turns are in a round.
func share(n, round, rounds int) int { return n*(round+1)/rounds - n*round/rounds }

func report(b *testing.B, m *machine, turns []*turn, began time.Time) {
	b.ReportMetric(0, "ns/op")
	table := tableHead
	for _, t := range turns {
		table += t.row.String()
	}
	fmt.Printf("\n%s\n%s.\n%s.\n%s\n", table, versions(b), m.disk(b), closing(began))
}

// closing says when it was.
func closing(began time.Time) string {
	return fmt.Sprintf("One run, from %s, %v long; every failover counts.\n", began.UTC().Format("2006-01-02 15:04 MST"), time.Since(began).Round(time.Second))
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
