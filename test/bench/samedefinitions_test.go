package bench

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	definingClusters = flag.Int("defining-clusters", 1000, "in how many logical clusters the same definitions are")
	definitionsEach  = flag.Int("definitions-each", 50, "how many definitions of the usual size each of these has, beside a large one")
	definingKills    = flag.Int("defining-kills", 3, "how many leaders of a shard with them to kill, and how many to ask to stop")
)

// Definitions of the usual size and a large one, by the number of their fields: some 2.5 and 34 KiB of JSON.
const usualFields, largeFields = 12, 275

// BenchmarkSameDefinitions is what the same definitions in many logical clusters cost: a large one, and then many of
// the usual size. Each is copied in etcd, and then used: an object is asked for, and what the cluster serves. It prints
// a table.
func BenchmarkSameDefinitions(b *testing.B) {
	m, began := start(b), time.Now()
	b.ReportMetric(0, "ns/op")
	n, table := *definingClusters, "| in each cluster | live heap, leader / standby | resident | goroutines in all |\n|---|---|---|---|\n"
	replicas := func() []*harness.Replica { return []*harness.Replica{m.leader, m.standby} }
	var was [2]usage
	add := func(what string, per int) {
		var is [2]usage
		for i, r := range replicas() {
			is[i] = takes(b, r)
		}
		if what != "" {
			of := float64(per)
			row := fmt.Sprintf("| %s | %.2f / %.2f KiB | %.2f / %.2f KiB | %+d / %+d |\n", what, (is[0].heap-was[0].heap)/of, (is[1].heap-was[1].heap)/of,
				(is[0].resident-was[0].resident)/of, (is[1].resident-was[1].resident)/of, is[0].goroutines-was[0].goroutines, is[1].goroutines-was[1].goroutines)
			table += row
			progress("%s", row)
		}
		was = is
	}
	scale := &scaled{}
	m.fill(b, scale, 0, n)
	first := m.stored(b)
	use := func(n int, paths ...string) {
		for _, r := range replicas() {
			client := httpClient(b, r)
			for c := range n {
				cluster := first.clusterOf(c)
				if c == 0 {
					cluster = first.cluster
				}
				for _, path := range paths {
					req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, r.URL+"/clusters/"+cluster+path, nil)
					if err != nil {
						b.Fatal(err)
					}
					read(b, client, req)
				}
			}
		}
	}
	save := func(name string) {
		if *profiles != "" {
			_ = m.leader.SaveProfile("heap?gc=1", filepath.Join(*profiles, name+"-leader.pprof"))
			_ = m.standby.SaveProfile("heap?gc=1", filepath.Join(*profiles, name+"-standby.pprof"))
		}
	}
	// what a cluster costs that is used at all is not what a definition costs
	use(n, "/api/v1/namespaces/default/configmaps", "/apis")
	add("", 0)
	// What a content costs that is served at all is not what a further cluster costs: it is used in the first one
	// before.
	large := []string{"/apis/large.example.com/v1/namespaces/default/larges", "/apis/large.example.com/v1", "/apis", "/openapi/v3"}
	define(b, m.leader, first.cluster, definitionOf("large.example.com", "larges", largeFields))
	use(1, large...)
	add("", 0)
	m.spread(b, "large.example.com", n)
	add("a definition of 34 KiB", n-1)
	save("large")
	use(n, large...)
	add("beside it, once it is used", n-1)
	save("large-used")
	for d := range *definitionsEach {
		define(b, m.leader, first.cluster, definitionOf("usual.example.com", fmt.Sprintf("usuals%03d", d), usualFields))
	}
	usual := []string{"/apis/usual.example.com/v1/namespaces/default/usuals000", "/apis/usual.example.com/v1", "/apis", "/openapi/v3"}
	use(1, usual...)
	add("", 0)
	copied := time.Now()
	m.spread(b, "usual.example.com", n)
	scale.settled(b, m.leader)
	progress("copied and reconciled in %v", time.Since(copied))
	add(fmt.Sprintf("each of %d of 2.5 KiB", *definitionsEach), (n-1)**definitionsEach)
	save("usual")
	use(n, usual...)
	add("beside each, once one is used and all are discovered", (n-1)**definitionsEach)
	save("usual-used")
	scale.size = n
	for range *definingKills {
		scale.failOver(b, m, syscall.SIGKILL, &scale.kills)
		progress("the definition controller: %v", m.leader.Lines("definition", "weep"))
	}
	for range *definingKills {
		scale.failOver(b, m, syscall.SIGTERM, &scale.stops)
	}
	fmt.Printf("\n%d clusters.\n%s\n%s\n%s\n%s.\n%s\n", n, table, scaledHead+scale.String(), versions(b), m.disk(b), closing(began))
}
