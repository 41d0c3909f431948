package bench

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

const (
	// crowd is how many users there are.
	crowd = 200
	// lead is how much of the second around a failover is before it: what was under way then may suffer, too.
	lead = 100 * time.Millisecond
)

// BenchmarkUsers is what ordinary users of the surviving replica notice when the leader is killed, at half the load
// that the machine sustains. It prints a table. Every failover counts, and every request.
//
// The users of the killed replica go on asking it, dead or alive, as those do who know one address: that they fail is
// no news. With -move they come to the survivor, as through a load balancer. Otherwise all that the killed replica did
// for them is off the machine, which the survivor shares, and the second around the failover may be better than those
// before. The killed replica is started again when that second is over; on a machine of its own it would disturb
// nobody.
//
// Keep the machine quiet: what stands still for a second, for whatever reason, has more requests in flight than the
// server admits, and then it refuses some.
func BenchmarkUsers(b *testing.B) {
	if *before < time.Second {
		b.Fatal("-before is too short: not a second to compare with")
	}
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	server, err := harness.BuildGo(b.TempDir(), "./test/e2e/faulty", opened(b))
	if err != nil {
		b.Fatal(err)
	}
	m := startServer(b, server, tokens(b, crowd))
	replicas := []*harness.Replica{m.leader, m.standby}
	if _, err := m.leader.Kube("root").CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	users := newUsers(b, crowd, replicas)
	furnish(b, users)
	sustained := saturate(b, users, *saturation)
	progress("the machine sustains %.0f requests a second", sustained)

	began := time.Now()
	l := apply(users, sustained/2)
	defer l.end()
	var all []episode
	for n := range *failovers {
		e := m.failOver(b, replicas)
		l.back()
		all = append(all, e)
		// All else is counted in the end: counting would disturb the next.
		progress("failover %d of %d: %s, load average %.2f", n+1, *failovers, show(e.sample.took), e.sample.load)
	}
	l.end()
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s.\n%s.\nOne run, from %s, %v long; every failover counts, and every request.\n\n", usersTable(l, sustained, all), versions(b), m.disk(b),
		began.UTC().Format("2006-01-02 15:04 MST"), time.Since(began).Round(time.Second))
}

// episode is one failover, with the time before it and until the killed replica stands by.
type episode struct {
	survivor          int // of the replicas
	from, killed, end time.Time
	sample            sample
	unasked           []string // why terms ended of which nobody killed the leader, meanwhile
}

// failOver lets the users be for a minute, kills the leader, and starts it again.
func (m *machine) failOver(b *testing.B, replicas []*harness.Replica) episode {
	b.Helper()
	e := episode{from: time.Now()}
	settle(*before + lead)
	e.unasked = m.catchUp(b)
	e.survivor = slices.Index(replicas, m.standby)
	e.killed = time.Now()
	took, first := m.writes.signal(b, m.leader.Process, syscall.SIGKILL, history.FirstWrite, m.term)
	e.sample = took
	if first.pid != m.standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, m.standby.PID())
	}
	time.Sleep(time.Until(e.again()))
	m.leader.Wait()
	m.leader, m.standby, m.term = m.standby, m.leader, first.term
	m.standby.Again()
	m.awaitStandby(b)
	e.end = time.Now()
	return e
}

// catchUp finds out who leads, if that has changed though nobody killed the leader, and returns why.
func (m *machine) catchUp(b *testing.B) (why []string) {
	b.Helper()
	for {
		next, changed := m.writes.waiting(history.FirstWrite)
		if !changed {
			return why
		}
		if next.term == m.term {
			continue
		}
		reason := "?"
		if ended := m.leader.Lines(`"The term has ended"`); len(ended) > 0 {
			reason = strings.TrimSpace(ended[len(ended)-1])
		}
		why = append(why, reason)
		progress("the leader has changed, though nobody killed it: %s", reason)
		m.term = next.term
		if next.pid == m.standby.PID() {
			m.leader, m.standby = m.standby, m.leader
			m.awaitStandby(b)
		}
	}
}

// minute is the time before the second around the failover.
func (e episode) minute() (from, to time.Time) {
	return e.killed.Add(-lead - *before), e.killed.Add(-lead)
}

// again is when the second around the failover is over, and the killed replica is started again.
func (e episode) again() time.Time { return e.killed.Add(time.Second - lead) }

// answers are the survivor's.
func (e episode) answers(l *load, from, to time.Time) answers { return l.answers(e.survivor, from, to) }

// figures are an episode's in the table.
type figures struct {
	name                    string
	sample                  sample
	failed, asked, inAround int
	minute, around, restart time.Duration   // p99
	seconds                 []time.Duration // p99 of each second of the minute
	failedElsewhere         int             // requests of the killed replica's users
	reasons                 string          // why requests to the survivor failed, and when
}

func (e episode) figures(name string, l *load) figures {
	from, to := e.minute()
	whole, around := e.answers(l, e.from, e.end), e.answers(l, e.killed.Add(-lead), e.again())
	f := figures{
		name: name, sample: e.sample, asked: len(whole), inAround: len(around),
		minute: e.answers(l, from, to).p99(), around: around.p99(), restart: e.answers(l, e.again(), e.end).p99(),
	}
	for ; !from.Add(time.Second).After(to); from = from.Add(time.Second) {
		f.seconds = append(f.seconds, e.answers(l, from, from.Add(time.Second)).p99())
	}
	f.failedElsewhere, _ = l.answers(1-e.survivor, e.from, e.end).failures()
	var by map[code]int
	for _, why := range e.unasked {
		f.reasons += fmt.Sprintf("Before failover %s another leader came, though nobody killed the old one: %s\n", name, why)
	}
	if f.failed, by = whole.failures(); f.failed > 0 {
		first, last := whole.when()
		killed := e.killed.Sub(l.began)
		f.reasons += fmt.Sprintf("Of failover %s these failed: %v, due from %.2f s to %.2f s after the kill.\n", name, by, (first - killed).Seconds(), (last - killed).Seconds())
	}
	return f
}

const usersHead = `| failover | to the first write | failed requests | p99 before, of %v | of the median second of it | of the second around it | ratio to all | ratio to the median second | while the other starts | load average |
|---|---|---|---|---|---|---|---|---|---|
`

// String is the row in Markdown.
func (f figures) String() string {
	return fmt.Sprintf("| %s | %s | %d of %d | %s | %s | %s (%d requests) | %.2f | %.2f | %s | %.2f |\n", f.name, show(f.sample.took), f.failed, f.asked,
		show(f.minute), show(median(f.seconds)), show(f.around), f.inAround, times(f.around, f.minute), times(f.around, median(f.seconds)), show(f.restart), f.sample.load)
}

// times is how many times as long one is as another.
func times(one, other time.Duration) float64 { return float64(one) / float64(max(other, 1)) }

// usersTable has a row for each failover, and what they come to together. All answers must be there.
func usersTable(l *load, sustained float64, all []episode) string {
	others := "go on asking it"
	if *move {
		others = "come to the survivor, until it is back"
	}
	table := fmt.Sprintf("%d users in open loop, %.0f requests a second together, half of %.0f which the machine sustains in closed loop; %d%% write. The killed replica's users %s. The survivor's:\n\n",
		crowd, sustained/2, sustained, writing, others) + fmt.Sprintf(usersHead, *before)
	var minutes, arounds, restarts answers
	var toMinute, toSecond, control ratios
	sum := figures{name: "all"}
	for n, e := range all {
		f := e.figures(fmt.Sprint(n+1), l)
		table += f.String()
		from, to := e.minute()
		minutes = append(minutes, e.answers(l, from, to)...)
		arounds = append(arounds, e.answers(l, e.killed.Add(-lead), e.again())...)
		restarts = append(restarts, e.answers(l, e.again(), e.end)...)
		toMinute, toSecond = append(toMinute, times(f.around, f.minute)), append(toSecond, times(f.around, median(f.seconds)))
		for _, second := range f.seconds {
			control = append(control, times(second, median(f.seconds)))
		}
		sum.failed, sum.asked, sum.inAround = sum.failed+f.failed, sum.asked+f.asked, sum.inAround+f.inAround
		sum.sample.took, sum.sample.load = max(sum.sample.took, e.sample.took), max(sum.sample.load, e.sample.load)
		sum.seconds, sum.failedElsewhere, sum.reasons = append(sum.seconds, f.seconds...), sum.failedElsewhere+f.failedElsewhere, sum.reasons+f.reasons
	}
	if len(all) == 0 {
		return table
	}
	sum.minute, sum.around, sum.restart = minutes.p99(), arounds.p99(), restarts.p99()
	return table + fmt.Sprintf("%s\nThe last row has the slowest failover, the highest load average, and p99 of all requests together.\n", sum) +
		fmt.Sprintf("Ratio to all of the time before: %v. To the median second of it: %v; that of the seconds without a failover: %v.\n", toMinute, toSecond, control) +
		fmt.Sprintf("%sOf the requests of the killed replica's users %d failed.\n", sum.reasons, sum.failedElsewhere)
}

// ratios are those of all failovers, or of all seconds.
type ratios []float64

func (all ratios) String() string {
	sorted := slices.Sorted(slices.Values(all))
	over := 0
	for _, r := range sorted {
		if r > 2 {
			over++
		}
	}
	return fmt.Sprintf("%.2f in the median, %.2f at most, over 2 in %d of %d", sorted[len(sorted)/2], sorted[len(sorted)-1], over, len(sorted))
}
