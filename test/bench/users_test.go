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

// BenchmarkUsers is what ordinary users of the surviving replica notice when the leader is killed, at half the load that the
// machine sustains. It prints a table. Every failover counts, and every request.
//
// The users of the killed replica go on asking it, dead or alive, as those do who know one address: that they fail is no
// news. With -move they come to the survivor, as through a load balancer. Otherwise all that the killed replica did for them
// is off the machine, which the survivor shares, and that is more than a failover costs: the second around it is better than
// those before. The killed replica is started again when that second is over; on a machine of its own it would disturb
// nobody.
func BenchmarkUsers(b *testing.B) {
	m := startWith(b, []string{opened(b)}, []string{tokens(b, crowd)})
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
		e := m.failOver(b, slices.Index(replicas, m.standby))
		l.back()
		all = append(all, e)
		progress("failover %d of %d: %s", n+1, *failovers, strings.Trim(e.figures(l).String(), "|\n"))
	}
	l.end()
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s.\n%s.\nOne run, from %s, %v long; every failover counts, and every request.\n\n", usersTable(l, sustained, all), m.versions(b), m.disk(b),
		began.UTC().Format("2006-01-02 15:04 MST"), time.Since(began).Round(time.Second))
}

// episode is one failover, with the time before it and until the killed replica stands by.
type episode struct {
	survivor          int // of the replicas
	from, killed, end time.Time
	sample            sample
}

// failOver lets the users be for a minute, kills the leader, and starts it again.
func (m *machine) failOver(b *testing.B, survivor int) episode {
	b.Helper()
	e := episode{survivor: survivor, from: time.Now()}
	settle(*before + lead)
	e.killed = time.Now()
	took, first := m.signal(b, m.leader.Process, syscall.SIGKILL, history.FirstWrite, m.term)
	e.sample = took
	if first.pid != m.standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, m.standby.PID())
	}
	time.Sleep(time.Until(e.killed.Add(time.Second - lead)))
	m.leader.Wait()
	m.leader, m.standby, m.term = m.standby, m.leader, first.term
	m.standby.Again()
	m.awaitStandby(b)
	e.end = time.Now()
	return e
}

// around is the second around the failover, minute what comes before it.
func (e episode) around() (from, to time.Time) {
	return e.killed.Add(-lead), e.killed.Add(time.Second - lead)
}

func (e episode) minute() (from, to time.Time) {
	return e.killed.Add(-lead - *before), e.killed.Add(-lead)
}

// figures are an episode's in the table.
type figures struct {
	name                          string
	sample                        sample
	failed, asked                 int
	minute, around, restart       time.Duration // p99
	inAround                      int
	reasons                       map[code]int // why requests to the survivor failed
	when                          string       // these were due
	failedElsewhere, doubleAnyway int          // requests of the killed replica's users; seconds of the minute
	secondsOfMinute               int
}

func (e episode) figures(l *load) figures {
	of := func(from, to time.Time) answers { return l.answers(e.survivor, replicasOfUsers, from, to) }
	whole := of(e.from, e.end)
	minute, around := of(e.minute()), of(e.around())
	f := figures{
		sample: e.sample, asked: len(whole), minute: minute.p99(), around: around.p99(), inAround: len(around),
		restart: of(e.killed.Add(time.Second-lead), e.end).p99(),
	}
	f.failed, f.reasons = whole.failures()
	if f.failed > 0 {
		first, last := whole.when()
		killed := e.killed.Sub(l.began)
		f.when = fmt.Sprintf("from %.2f s to %.2f s after the kill", (first - killed).Seconds(), (last - killed).Seconds())
	}
	f.failedElsewhere, _ = l.answers(1-e.survivor, replicasOfUsers, e.from, e.end).failures()
	from, to := e.minute()
	for at := from; !at.Add(time.Second).After(to); at = at.Add(time.Second) {
		f.secondsOfMinute++
		if of(at, at.Add(time.Second)).p99() > 2*f.minute {
			f.doubleAnyway++
		}
	}
	return f
}

// ratio is by how much the second was worse than the minute.
func (f figures) ratio() float64 {
	if f.minute == 0 {
		return 0
	}
	return float64(f.around) / float64(f.minute)
}

// String is the row in Markdown.
func (f figures) String() string {
	return fmt.Sprintf("| %s | %s | %d of %d | %s | %s (%d requests) | %.2f | %s | %.2f |\n", f.name, show(f.sample.took),
		f.failed, f.asked, show(f.minute), show(f.around), f.inAround, f.ratio(), show(f.restart), f.sample.load)
}

// usersTable has a row for each failover, and what they come to together. All answers must be there.
func usersTable(l *load, sustained float64, all []episode) string {
	table := fmt.Sprintf("%d users in open loop, %.0f requests a second together, half of %.0f which the machine sustains in closed loop; %d%% write. Those of the survivor:\n\n",
		crowd, sustained/2, sustained, writing)
	if *move {
		table = strings.Replace(table, ". Those of", ". Those of the killed replica come to the survivor. Those of", 1)
	}
	table += fmt.Sprintf("| failover | to the first write | failed requests | p99 of %v before | p99 of the second around it | ratio | p99 while the other starts | load average |\n|---|---|---|---|---|---|---|---|\n", *before)
	var minutes, arounds, restarts answers
	var ratios []float64
	sum := figures{name: "all"}
	over, reasons := 0, ""
	for n, e := range all {
		f := e.figures(l)
		f.name = fmt.Sprint(n + 1)
		table += f.String()
		of := func(from, to time.Time) answers { return l.answers(e.survivor, replicasOfUsers, from, to) }
		minutes, arounds = append(minutes, of(e.minute())...), append(arounds, of(e.around())...)
		restarts = append(restarts, of(e.killed.Add(time.Second-lead), e.end)...)
		ratios = append(ratios, f.ratio())
		if f.ratio() > 2 {
			over++
		}
		sum.failed, sum.asked, sum.inAround = sum.failed+f.failed, sum.asked+f.asked, sum.inAround+f.inAround
		sum.failedElsewhere, sum.doubleAnyway, sum.secondsOfMinute = sum.failedElsewhere+f.failedElsewhere, sum.doubleAnyway+f.doubleAnyway, sum.secondsOfMinute+f.secondsOfMinute
		sum.sample.took, sum.sample.load = max(sum.sample.took, e.sample.took), max(sum.sample.load, e.sample.load)
		if f.failed > 0 {
			reasons += fmt.Sprintf("At failover %d these failed, %s: %v.\n", n+1, f.when, f.reasons)
		}
	}
	if len(all) == 0 {
		return table
	}
	sum.minute, sum.around, sum.restart = minutes.p99(), arounds.p99(), restarts.p99()
	table += sum.String()
	slices.Sort(ratios)
	table += fmt.Sprintf("\nThe last row has the slowest failover, the highest load average, and p99 of all requests together. The ratio was %.2f in the median, %.2f at most, and over 2 in %d of %d failovers; so was that of %d of %d seconds without one (%.1f%%).\n",
		ratios[len(ratios)/2], ratios[len(ratios)-1], over, len(ratios), sum.doubleAnyway, sum.secondsOfMinute, 100*float64(sum.doubleAnyway)/float64(max(1, sum.secondsOfMinute)))
	return table + reasons + fmt.Sprintf("Of the requests of the killed replica's users %d failed.\n", sum.failedElsewhere)
}
