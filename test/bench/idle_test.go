package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkIdle is what it costs etcd and the API server that nothing happens: in shards of 1, 3 and 10 replicas, and
// beside the first with client-go's stock elector, which has its own Lease on the same server. It prints a table.
func BenchmarkIdle(b *testing.B) {
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	var rows []cost
	for _, n := range []int{1, 3, 10} {
		q := newQuiet(b, n)
		rows = append(rows, q.look(b, "Regent", metav1.NamespaceSystem, harness.LeaseName, n))
		if n == 1 {
			rows = append(rows, q.peers(b)...)
		}
		q.end()
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s.\n\n", costTable(rows), versions(b))
}

// quiet is a shard that nobody uses, on an etcd of its own.
type quiet struct {
	etcd     *harness.Etcd
	client   *clientv3.Client
	replicas []*harness.Replica
	audits   []string // the replicas' audit logs, which have what becomes of Leases
}

// rest is how long a shard is left alone after a start before one looks.
const rest = 15 * time.Second

// newQuiet starts the product's replicas, one after the other, until the last follows the first.
func newQuiet(b *testing.B, n int) *quiet {
	b.Helper()
	q := &quiet{etcd: harness.StartEtcd(b)}
	q.client = q.etcd.Client(b)
	shard := harness.NewShard(q.etcd.URL)
	shard.Timings = harness.Default
	shard.Args = []string{"--audit-policy-file=" + save(b, "policy.yaml", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
`))}
	for i := range n {
		name := fmt.Sprintf("r%d", i)
		log := filepath.Join(b.TempDir(), name+".audit")
		r := shard.Start(b, name, "--audit-log-path="+log)
		if i == 0 {
			r.WaitRoot()
		} else {
			harness.Eventually(b, "the next stands by", func() bool { return r.Follows() })
		}
		q.replicas, q.audits = append(q.replicas, r), append(q.audits, log)
	}
	return q
}

// end ends all of it: it would cost the next one its processors.
func (q *quiet) end() {
	for _, r := range q.replicas {
		r.Kill()
	}
	q.etcd.Kill()
}

// peers are what client-go's elector costs: a leader alone, and with a standby.
func (q *quiet) peers(b *testing.B) (rows []cost) {
	b.Helper()
	const name = "stock"
	for n := 1; n <= 2; n++ {
		p := harness.Start(b, fmt.Sprintf("%s-%d", name, n), harness.Binary("clientgo"),
			"--kubeconfig="+filepath.Join(q.replicas[0].Root, "admin.kubeconfig"), "--name="+name)
		defer p.Kill()
		rows = append(rows, q.look(b, "client-go", metav1.NamespaceDefault, name, n))
	}
	return rows
}

// cost is what one Lease took, and the rest of the shard.
type cost struct {
	who       string
	processes int
	took      time.Duration
	lease     int            // writes of the Lease, in etcd
	others    map[string]int // other writes, by key, but of the Leases of others that are compared
	verbs     map[string]int // requests for the Lease, to all API servers
	reads     int            // those that read it
	most      int            // by the API server that had most of them
	stored    int            // reads of any Lease that the API servers made in etcd
	ranges    int64          // requests to etcd that read anything, by anybody
	load      float64
}

// look counts for a while what becomes of a Lease.
func (q *quiet) look(b *testing.B, who, namespace, name string, processes int) cost {
	b.Helper()
	time.Sleep(rest)
	written := watchAll(b, q.client)
	before := q.gauge(b)
	began := time.Now()
	time.Sleep(*idle)
	c := cost{who: who, processes: processes, took: time.Since(began), others: map[string]int{}, verbs: map[string]int{}, load: loadAverage(b)}
	after := q.gauge(b)
	c.stored, c.ranges = after.stored-before.stored, after.ranges-before.ranges
	for key, n := range written.until(b, before.revision, after.revision) {
		switch {
		case isLease(key, namespace, name):
			c.lease += n
		case !isLease(key, metav1.NamespaceSystem, harness.LeaseName): // which is there beside any other
			c.others[key] += n
		}
	}
	for _, log := range q.audits {
		verbs := requests(b, log, namespace, name, began, began.Add(c.took))
		for verb, n := range verbs {
			c.verbs[verb] += n
		}
		reads := verbs["get"] + verbs["list"]
		c.reads, c.most = c.reads+reads, max(c.most, reads)
	}
	progress("%s", strings.TrimSpace(c.String()))
	return c
}

func isLease(key, namespace, name string) bool {
	return strings.Contains(key, "/leases/") && strings.HasSuffix(key, "/"+namespace+"/"+name)
}

// gauge is what is counted since the start.
type gauge struct {
	revision, ranges int64
	stored           int
}

func (q *quiet) gauge(b *testing.B) (g gauge) {
	b.Helper()
	for _, r := range q.replicas {
		for _, operation := range []string{"get", "list"} {
			g.stored += int(r.MetricSum("etcd_requests_total", `operation="`+operation+`"`, `resource="leases"`))
		}
	}
	metrics := etcdMetrics(b, q.etcd)
	g.revision = counter(b, metrics, "etcd_debugging_mvcc_current_revision")
	g.ranges = counter(b, metrics, `grpc_server_started_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"}`)
	return g
}

// counter is a sample of etcd's metrics.
func counter(b *testing.B, metrics, sample string) int64 {
	b.Helper()
	var n float64
	_, rest, found := strings.Cut(metrics, "\n"+sample+" ")
	if _, err := fmt.Sscan(rest, &n); !found || err != nil {
		b.Fatalf("etcd does not tell %s: %v", sample, err)
	}
	return int64(n)
}

// revisions are the keys that were written, by revision.
type revisions struct {
	client *clientv3.Client
	mu     sync.Mutex
	keys   map[int64][]string
	last   int64
	failed error
}

// watchAll watches all keys that there are until the benchmark ends. It costs nothing of what is counted.
func watchAll(b *testing.B, client *clientv3.Client) *revisions {
	b.Helper()
	w := &revisions{client: client, keys: map[int64][]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	events := client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first, ok := <-events; !ok || first.Err() != nil {
		b.Fatalf("cannot watch etcd: %v", first.Err())
	}
	var following sync.WaitGroup
	following.Go(func() {
		for resp := range events {
			w.mu.Lock()
			for _, e := range resp.Events {
				w.keys[e.Kv.ModRevision] = append(w.keys[e.Kv.ModRevision], string(e.Kv.Key))
			}
			w.last, w.failed = max(w.last, resp.Header.Revision), resp.Err()
			w.mu.Unlock()
		}
	})
	b.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return w
}

// until returns how often each key was written after one revision, and no later than another. No revision is missing.
func (w *revisions) until(b *testing.B, from, to int64) map[string]int {
	b.Helper()
	harness.Eventually(b, "the watch has caught up", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.last >= to || w.failed != nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		b.Fatalf("the watch on etcd has ended: %v", w.failed)
	}
	n := map[string]int{}
	for revision := from + 1; revision <= to; revision++ {
		if len(w.keys[revision]) == 0 {
			b.Errorf("nobody knows what was written at revision %d", revision)
		}
		for _, key := range w.keys[revision] {
			n[key]++
		}
	}
	return n
}

// requests counts, by verb, those for a Lease that an audit log has of a time. A watch counts when it begins.
func requests(b *testing.B, log, namespace, name string, from, to time.Time) map[string]int {
	b.Helper()
	file, err := os.Open(log)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	verbs := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb string
			ObjectRef   struct{ Namespace, Name string }
			RequestTime metav1.MicroTime `json:"requestReceivedTimestamp"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			b.Fatalf("%s: %v", log, err)
		}
		begins := e.Stage == "ResponseStarted"
		switch {
		case e.ObjectRef.Namespace != namespace || e.ObjectRef.Name != name || e.RequestTime.Time.Before(from) || e.RequestTime.After(to):
		case (e.Verb == "watch") == begins:
			verbs[e.Verb]++
		}
	}
	if err := lines.Err(); err != nil {
		b.Fatal(err)
	}
	return verbs
}

// String is the row in Markdown.
func (c cost) String() string {
	others := 0
	for _, n := range c.others {
		others += n
	}
	minutes := c.took.Minutes()
	return fmt.Sprintf("| %s | %d | %.3f | %d | %d: %.2f | %d | %d | %.2f | %s | %.2f |\n", c.who, c.processes,
		float64(c.lease)/c.took.Seconds(), others, c.reads, float64(c.reads)/minutes/float64(c.processes), c.most, c.stored,
		float64(c.ranges)/c.took.Seconds(), tally(c.verbs), c.load)
}

// tally says what there is, and how often.
func tally(n map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", what, n[what]))
	}
	return strings.Join(all, ", ")
}

func costTable(rows []cost) string {
	table := fmt.Sprintf("What %v of idleness cost, each. Reads are GET and LIST:\n\n", *idle)
	table += "| who | processes | writes of its Lease in etcd, 1/s | other writes in etcd | reads of its Lease: all, 1/min and process | most through one replica | reads of Leases in etcd | all reads in etcd, by all, 1/s | requests for its Lease | load average |\n|---|---|---|---|---|---|---|---|---|---|\n"
	others := map[string]int{}
	for _, c := range rows {
		table += c.String()
		for key, n := range c.others {
			others[key] += n
		}
	}
	if len(others) > 0 {
		table += fmt.Sprintf("\nThe other writes in etcd, of all rows: %s.\n", tally(others))
	}
	return table
}
