package bench

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	everywhere     = flag.Int("everywhere-clusters", 100, "in how many logical clusters BenchmarkDefinedEverywhere has the same definitions; 10,000 need 12 GiB of memory and 10 of disk")
	everywhereEach = flag.Int("everywhere-each", 50, "how many definitions each of them has")
)

// BenchmarkDefinedEverywhere is BenchmarkSameDefinitions for very many clusters: only what depends on how many
// definitions there are. They are copied in etcd and not used. Then the leader is killed, and starts again.
func BenchmarkDefinedEverywhere(b *testing.B) {
	m, began := start(b), time.Now()
	b.ReportMetric(0, "ns/op")
	n, scale := *everywhere, &scaled{}
	m.fill(b, scale, 0, n)
	first := m.stored(b)
	for d := range *everywhereEach {
		define(b, m.leader, first.cluster, definitionOf("usual.example.com", fmt.Sprintf("usuals%03d", d), usualFields))
	}
	both, all := func() [2]usage { return [2]usage{takes(b, m.leader), takes(b, m.standby)} }, float64((n-1)**everywhereEach)
	each := func(before, now [2]usage) string {
		return fmt.Sprintf("live heap %.2f / %.2f KiB, resident %.2f / %.2f KiB for each definition, leader / standby; resident %.0f / %.0f MiB in all",
			(now[0].heap-before[0].heap)/all, (now[1].heap-before[1].heap)/all, (now[0].resident-before[0].resident)/all, (now[1].resident-before[1].resident)/all,
			now[0].resident/1024, now[1].resident/1024)
	}
	before := both()
	m.spread(b, "usual.example.com", n)
	scale.settled(b, m.leader)
	copied := each(before, both())
	progress("%s", copied)

	started := time.Now()
	m.leader.Signal(syscall.SIGKILL)
	if err := m.standby.TryCreateWorkspace(b.Context(), "after"); err != nil {
		b.Fatal(err)
	}
	created := time.Since(started)
	m.standby.WaitWorkspace("after")
	ready := time.Since(started)
	m.leader.Wait()
	m.leader, m.standby = m.standby, m.leader
	progress("killed: %v until a workspace is created, %v until it is Ready", created, ready)
	started = time.Now()
	m.standby.Again()
	for m.standby.Status("/readyz") != http.StatusOK {
		time.Sleep(20 * time.Millisecond)
	}
	start, startCPU := time.Since(started), m.standby.CPU()
	progress("started in %v", start)
	scale.settled(b, m.leader)
	progress("the definition controller: %v", m.leader.Lines("definition", "weep"))
	again := both()
	last := first.clusterOf(n - 1)
	list, size := timed(b, m.standby, "/clusters/"+last+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", 5)
	discovery, _ := timed(b, m.standby, "/clusters/"+last+"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 5)
	var news []time.Duration
	for k := range 5 {
		news = append(news, define(b, m.leader, last, definitionOf("usual.example.com", fmt.Sprintf("later%03d", k), usualFields)))
	}
	fmt.Printf("\n%s\n", strings.Join([]string{
		fmt.Sprintf("%.0f definitions in %d clusters.", all, n-1),
		"Copied: " + copied + ".",
		fmt.Sprintf("kill -9 until a write: %s; a workspace is Ready after %s.", show(created), show(ready)),
		fmt.Sprintf("A killed replica is ready after %s, with %s of CPU; then it has %.0f MiB of live heap, and %.0f MiB resident.", show(start), show(startCPU), again[1].heap/1024, again[1].resident/1024),
		fmt.Sprintf("A list of one cluster's definitions: %s (%d KiB); its discovery %s; one more is established in %s.", show(list), size>>10, show(discovery), show(median(news))),
		versions(b), m.disk(b), closing(began),
	}, "\n"))
}
