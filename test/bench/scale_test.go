package bench

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	sizes      = flag.String("sizes", "0,10000,100000", "how many workspaces are in the shard, one measurement after the other")
	profiles   = flag.String("scale-profiles", "", "a directory for profiles, with each number of workspaces: heaps, and the CPU of the leader while the workspaces are created")
	created    = flag.Int("scale-created", 2000, "how many workspaces are created at once, and deleted again, with each number of workspaces")
	scaleKills = flag.Int("scale-kills", 10, "how many leaders to kill, with each number of workspaces")
	scaleStops = flag.Int("scale-stops", 10, "how many leaders to ask to stop, with each number of workspaces")
	scaleStill = flag.Bool("scale-still", false, "copy workspaces while no replica runs: a million takes minutes then, but all replicas are restarted ones")
)

// BenchmarkAtScale is what a shard costs, and how soon it does what users ask for, with more and more workspaces in it
// (I12, I13): two replicas, default timings. It prints a table. Workspaces are in root, with nothing in them. Most of
// them are copies that are made in etcd; some are created and deleted besides, to measure that.
//
// A failover is from the signal until a workspace is Ready that somebody applies through the survivor at once: three
// writes of the next leader's controllers. The sweep is from the signal until the new leader's controllers have passed
// over everything. Meanwhile somebody reads and somebody writes, each as fast as it is
// answered, but for a pause.
func BenchmarkAtScale(b *testing.B) {
	m, began := startPlain(b), time.Now()
	var rows []*scaled
	defer func() {
		b.ReportMetric(0, "ns/op")
		table := scaledHead
		for _, r := range rows {
			table += r.String()
		}
		fmt.Printf("\n%s\n%s.\n%s.\n%s\n", table, versions(b), m.disk(b), closing(began))
	}()
	there := 0
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < there {
			b.Fatalf("-sizes=%s: give numbers that grow", *sizes)
		}
		r := &scaled{size: size}
		rows = append(rows, r)
		m.fill(b, r, there, size)
		there = size
		r.memory = r.resident(m, rows[0])
		r.profile(m.leader, "heap?gc=1", "heap-leader")
		r.profile(m.standby, "heap?gc=1", "heap-standby")
		m.throughput(b, r, size, *created)
		for range *scaleKills {
			r.failOver(b, m, syscall.SIGKILL, &r.kills)
		}
		for range *scaleStops {
			r.failOver(b, m, syscall.SIGTERM, &r.stops)
		}
		r.restarted = r.resident(m, rows[0])
	}
}

// scaled is what was measured with one number of workspaces.
type scaled struct {
	size                     int
	accepted, ready, deleted float64 // workspaces in a second, with creators at once
	creating, deleting       cpu
	memory                   [2]footprint
	etcdMiB                  int
	// after all failovers, after each of which the old leader is started again
	restarted    [2]footprint
	kills, stops []outage
	starts       []time.Duration // from the start of a killed replica until it is ready
}

// footprint is of the leader, and of the standby.
type footprint struct {
	residentMiB, goroutines, heapMiB int
	each                             float64 // KiB for each workspace more than in the first row
}

// outage is one failover.
type outage struct {
	ready, sweep  time.Duration // from the signal
	before, after replies
}

// resident returns what the leader and the standby use.
func (r *scaled) resident(m *machine, first *scaled) (is [2]footprint) {
	time.Sleep(10 * time.Second) // what is released to the system is so after a while
	for i, replica := range []*harness.Replica{m.leader, m.standby} {
		all, _ := replica.Goroutines("")
		is[i] = footprint{residentMiB: replica.ResidentMiB(), goroutines: all, heapMiB: replica.Heap() >> 20}
		if more := r.size - first.size; more > 0 {
			is[i].each = float64(is[i].residentMiB-first.memory[i].residentMiB) * 1024 / float64(more)
		}
	}
	r.etcdMiB = 0
	for _, member := range m.etcd.Members {
		r.etcdMiB += member.ResidentMiB()
	}
	progress("%d workspaces: leader %+v, standby %+v, etcd %d MiB", r.size, is[0], is[1], r.etcdMiB)
	return is
}

// profile saves a profile, if somebody wants it.
func (r *scaled) profile(of *harness.Replica, name, file string) {
	if *profiles == "" {
		return
	}
	if err := of.SaveProfile(name, filepath.Join(*profiles, fmt.Sprintf("%s-%d.pprof", file, r.size))); err != nil {
		progress("%v", err)
	}
}

// failOver ends the leader, and starts it again.
func (r *scaled) failOver(b *testing.B, m *machine, s syscall.Signal, to *[]outage) {
	b.Helper()
	r.settled(b, m.leader)
	users := ask(b, m.standby, max(1, r.size))
	defer users.end()
	watching := watchWorkspaces(b, m.standby)
	defer watching.end()
	time.Sleep(5 * time.Second)
	name := fmt.Sprintf("after-%d-%d-%d", r.size, s, len(*to))
	signalled := time.Now()
	m.leader.Signal(s)
	if err := m.standby.TryCreateWorkspace(b.Context(), name); err != nil {
		b.Fatal(err)
	}
	created := time.Now()
	o := outage{
		ready: watching.until(b, name, isReady).Sub(signalled),
	}
	swept := r.settled(b, m.standby)
	o.sweep = swept.Sub(signalled)
	users.end()
	o.before, o.after = users.within(signalled.Add(-5*time.Second), signalled), users.within(signalled, swept)
	*to = append(*to, o)

	m.leader.Wait()
	m.leader, m.standby = m.standby, m.leader
	started := time.Now()
	m.standby.Again()
	var profiling sync.WaitGroup
	if *profiles != "" {
		profiling.Go(func() {
			for m.standby.Status("/livez") == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			r.profile(m.standby, "profile?seconds=10", "cpu-start")
		})
	}
	defer profiling.Wait()
	for m.standby.Status("/readyz") != http.StatusOK {
		time.Sleep(20 * time.Millisecond)
	}
	r.starts = append(r.starts, time.Since(started))
	m.awaitStandby(b)
	progress("%d workspaces, %v: Ready %s, swept after %s; p99 %s before, %s after, %d of %d failed; started again in %s", r.size, s,
		show(o.ready), show(o.sweep), show(o.before.p99()), show(o.after.p99()), o.after.failed, o.after.n(), show(r.starts[len(r.starts)-1]))
	progress("signalled %s, created %s, Ready %s", clock(signalled), clock(created), clock(signalled.Add(o.ready)))
	for _, line := range slices.Concat(m.leader.Lines(`"The leader's process is gone`), m.leader.Lines(`"Takeover" `, harness.LeaseName)) {
		_, phases, _ := strings.Cut(line, harness.LeaseName)
		progress("%s %s", strings.Fields(line)[1], strings.TrimSpace(phases))
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

// settled waits until the leader's controllers have nothing to do any more, and returns since when. A new leader's tell
// only after a second that they have something to do.
func (r *scaled) settled(b *testing.B, leader *harness.Replica) (since time.Time) {
	b.Helper()
	harness.EventuallyIn(b, 10*time.Minute, "the sweep has ended", func() bool {
		if leader.MetricSum("regent_controller_sweeping")+leader.MetricSum("workqueue_depth") > 0 {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
	return since
}

const scaledHead = `| workspaces | accepted, Ready, deleted in a second | CPU of leader / standby / etcd / users for each of these | the same, deleting | resident, leader / standby / etcd | of that for each workspace | the same, after restarts | heap | goroutines | kill -9 until Ready: median (max) | SIGTERM until Ready | sweep | users' p99 before / until swept | failed | restarted and ready |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// String is the row in Markdown.
func (r *scaled) String() string {
	of := func(all []outage, get func(outage) time.Duration) string {
		var took []time.Duration
		for _, o := range all {
			took = append(took, get(o))
		}
		if len(took) == 0 {
			return ""
		}
		return fmt.Sprintf("%s (%s)", show(median(took)), show(percentile(took, 100)))
	}
	both := append(append([]outage{}, r.kills...), r.stops...)
	var before, after replies
	for _, o := range both {
		before, after = before.and(o.before), after.and(o.after)
	}
	l, s := r.memory[0], r.memory[1]
	var started string
	if len(r.starts) > 0 {
		started = fmt.Sprintf("%s (%s)", show(median(r.starts)), show(percentile(r.starts, 100)))
	}
	return fmt.Sprintf("| %d | %.0f, %.0f, %.0f | %v | %v | %d / %d / %d MiB | %.1f / %.1f KiB | %.1f / %.1f KiB | %d / %d MiB | %d / %d | %s | %s | %s | %s / %s | %d of %d | %s |\n",
		r.size, r.accepted, r.ready, r.deleted, r.creating, r.deleting, l.residentMiB, s.residentMiB, r.etcdMiB, l.each, s.each, r.restarted[0].each, r.restarted[1].each, l.heapMiB, s.heapMiB, l.goroutines, s.goroutines,
		of(r.kills, func(o outage) time.Duration { return o.ready }), of(r.stops, func(o outage) time.Duration { return o.ready }), of(both, func(o outage) time.Duration { return o.sweep }),
		show(before.p99()), show(after.p99()), before.failed+after.failed, before.n()+after.n(), started)
}
