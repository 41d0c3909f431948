package bench

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var manyDefinitions = flag.String("many-definitions", "1,1000,2000,5000", "how many definitions one logical cluster has, one measurement after the other")

// BenchmarkManyDefinitions is what thousands of definitions in one logical cluster cost, all of them in one API group,
// and each in a group of its own: what each further one takes until it is established, and how long discovery, schemas
// and single reads take. In the end the leader is killed. It prints a table. What grows with the square of their number
// would show in the CPU column, which is of the leader for each further definition.
func BenchmarkManyDefinitions(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for _, groups := range []string{"one group", "groups of their own"} {
		m, began := start(b), time.Now()
		m.leader.CreateWorkspace("many")
		many := &manyOf{machine: m, cluster: m.leader.WaitWorkspace("many"), apart: groups != "one group"}
		table := manyHead
		for text := range strings.SplitSeq(*manyDefinitions, ",") {
			to, err := strconv.Atoi(text)
			if err != nil || to <= many.there {
				b.Fatalf("-many-definitions=%s: give numbers that grow", *manyDefinitions)
			}
			row := many.more(b, to)
			progress("%s: %s", groups, row)
			table += row
		}
		fmt.Printf("\nDefinitions in one cluster, in %s:\n\n%s\n%s\n%s.\n%s\n", groups, table, many.kill(b), versions(b), closing(began))
	}
}

const manyHead = `| definitions | established in a second | leader's CPU for each | one more is established in | /apis/GROUP/v1 | aggregated discovery | /openapi/v3 | schemas of a group, first and then | get of one | an object, median | live heap, leader / standby |
|---|---|---|---|---|---|---|---|---|---|---|
`

// manyOf is the logical cluster that has many definitions.
type manyOf struct {
	*machine
	cluster string
	apart   bool // each in a group of its own
	there   int
}

func (m *manyOf) group(n int) string {
	if m.apart {
		return fmt.Sprintf("g%05d.example.com", n)
	}
	return "example.com"
}

// more makes definitions until there are so many, 8 at once, and measures.
func (m *manyOf) more(b *testing.B, to int) string {
	b.Helper()
	client := m.leader.Dynamic(m.cluster).Resource(definitions)
	w, err := watchtools.NewRetryWatcherWithContext(b.Context(), m.revision(b), &cache.ListWatch{WatchFuncWithContext: client.Watch})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	before, began := m.leader.CPU(), time.Now()
	var making sync.WaitGroup
	const makers = 8
	for maker := range makers {
		making.Go(func() {
			for n := m.there + maker; n < to; n += makers {
				d := definitionOf(m.group(n), fmt.Sprintf("things%05d", n), usualFields)
				if _, err := client.Create(b.Context(), d, metav1.CreateOptions{}); err != nil {
					b.Errorf("%s: %v", d.GetName(), err)
					return
				}
			}
		})
	}
	if *profiles != "" && to-m.there > 500 {
		making.Go(func() {
			_ = m.leader.SaveProfile("profile?seconds=15", filepath.Join(*profiles, fmt.Sprintf("many-%v-%d-cpu.pprof", m.apart, to)))
		})
	}
	m.until(b, w, to-m.there)
	took := time.Since(began)
	making.Wait()
	each := (m.leader.CPU() - before) / time.Duration(to-m.there)
	rate := float64(to-m.there) / took.Seconds()
	m.there = to
	return fmt.Sprintf("| %d | %.0f | %s | %s\n", to, rate, show(each), m.look(b))
}

// until reads a watch until so many definitions are established.
func (m *manyOf) until(b *testing.B, w watch.Interface, n int) {
	b.Helper()
	seen, late := map[string]bool{}, time.After(20*time.Minute)
	for len(seen) < n && !b.Failed() {
		select {
		case event := <-w.ResultChan():
			if d, ok := event.Object.(*unstructured.Unstructured); ok && isEstablished(d) {
				seen[d.GetName()] = true
			}
		case <-late:
			b.Fatalf("%d of %d definitions are established", len(seen), n)
		}
	}
	if b.Failed() {
		b.FailNow()
	}
}

// look measures what reads take.
func (m *manyOf) look(b *testing.B) string {
	b.Helper()
	var one, object []time.Duration
	for n := range 5 {
		extra := fmt.Sprintf("extra%05dx%d", m.there, n)
		one = append(one, define(b, m.leader, m.cluster, definitionOf(m.group(m.there), extra, usualFields)))
	}
	path := "/clusters/" + m.cluster
	for range 20 {
		took, _ := timed(b, m.leader, path+"/apis/"+m.group(0)+"/v1/namespaces/default/things00000", "application/json", 1)
		object = append(object, took)
	}
	list, _ := timed(b, m.leader, path+"/apis/"+m.group(0)+"/v1", "application/json", 5)
	all, size := timed(b, m.leader, path+"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 5)
	index, _ := timed(b, m.leader, path+"/openapi/v3", "application/json", 5)
	schemas := path + "/openapi/v3/apis/" + m.group(0) + "/v1"
	first, bytes := timed(b, m.leader, schemas, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", 1)
	again, _ := timed(b, m.leader, schemas, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", 5)
	get, _ := timed(b, m.leader, path+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things00000."+m.group(0), "application/json", 20)
	heaps := [2]int{m.leader.Heap() >> 20, m.standby.Heap() >> 20}
	if *profiles != "" {
		_ = m.leader.SaveProfile("heap?gc=1", filepath.Join(*profiles, fmt.Sprintf("many-%v-%d-heap.pprof", m.apart, m.there)))
	}
	return fmt.Sprintf("%s | %s | %s (%d KiB) | %s | %s, %s (%d KiB) | %s | %s | %d / %d MiB |", show(median(one)), show(list), show(all), size>>10, show(index),
		show(first), show(again), bytes>>10, show(get), show(median(object)), heaps[0], heaps[1])
}

// kill kills the leader, and has the next one establish a definition; then the killed one starts again.
func (m *manyOf) kill(b *testing.B) string {
	b.Helper()
	var took, starts, sweeps []time.Duration
	for n := range 3 {
		began := time.Now()
		m.leader.Signal(syscall.SIGKILL)
		define(b, m.standby, m.cluster, definitionOf(m.group(m.there), fmt.Sprintf("late%d", n), usualFields))
		took = append(took, time.Since(began))
		(&scaled{}).settled(b, m.standby)
		sweeps = append(sweeps, time.Since(began))
		m.leader.Wait()
		m.leader, m.standby = m.standby, m.leader
		began = time.Now()
		m.standby.Again()
		m.standby.WaitReady()
		starts = append(starts, time.Since(began))
		m.awaitStandby(b)
	}
	slices.Sort(took)
	return fmt.Sprintf("kill -9 until one more definition is established: %s median of %d, %s at most; until all is swept %s; a replica is ready again after %s\n",
		show(median(took)), len(took), show(slices.Max(took)), show(median(sweeps)), show(median(starts)))
}

func (m *manyOf) revision(b *testing.B) string {
	b.Helper()
	list, err := m.leader.Dynamic(m.cluster).Resource(definitions).List(b.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	return list.GetResourceVersion()
}
