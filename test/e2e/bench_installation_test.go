package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// benchWorkspaces are created one after the other, and land on three shards.
	benchWorkspaces = 150
	// askFor is how long requests are made in each way.
	askFor = 20 * time.Second
	// askers are the connections over which they are made.
	askers = 16
)

// BenchmarkInstallation is what users of an installation of three shards of two replicas wait for: until a workspace is
// Ready, until it can be reached through every front, and how much longer an answer takes through a front than without.
// It prints two tables.
func BenchmarkInstallation(b *testing.B) {
	for range b.N {
		i := harness.Install(b, "eu1", "us1")
		fronts := []*harness.Front{i.StartFront(), i.StartFront()}
		fmt.Printf("\n%s\n", creations(b, i, fronts))
		fmt.Printf("%s\n", forwarding(b, i, fronts[0]))
	}
	b.ReportMetric(0, "ns/op")
}

// created is what was seen of one workspace.
type created struct {
	shard, cluster string
	ready, reached time.Duration // reached: through every front, since it was Ready
	refusals       []int         // of requests after it was Ready
}

// creations creates workspaces through one front, and waits for them through another.
func creations(b *testing.B, i *harness.Installation, fronts []*harness.Front) string {
	b.Helper()
	watch, err := fronts[1].Dynamic("root").Resource(harness.Workspaces).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	var clients []*http.Client
	for _, f := range fronts {
		clients = append(clients, newAsker(b, f.Config("")))
	}
	workspaces := fronts[0].Dynamic("root").Resource(harness.Workspaces)
	var all []created
	for n := range benchWorkspaces {
		name := fmt.Sprintf("ws-%d", n)
		began := time.Now()
		if _, err := workspaces.Create(b.Context(), harness.NewWorkspace(name), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		var c created
		for c.ready == 0 {
			event, open := <-watch.ResultChan()
			if !open {
				b.Fatal("the watch has ended")
			}
			ws, ok := event.Object.(*unstructured.Unstructured)
			if phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase"); ok && ws.GetName() == name && phase == "Ready" {
				c.ready, c.shard = time.Since(began), ws.GetLabels()["regent.dev/shard"]
				c.cluster, _, _ = unstructured.NestedString(ws.Object, "spec", "cluster")
			}
		}
		c.reach(b, fronts, clients)
		all = append(all, c)
	}
	var table strings.Builder
	table.WriteString("| workspace on | n | created to Ready, median | p99 | max | reached by name through both fronts after Ready, median | max | answered with 4xx or 5xx meanwhile |\n|---|---|---|---|---|---|---|---|\n")
	for _, m := range i.All() {
		var ready, reached []time.Duration
		var refusals []int
		for _, c := range all {
			if c.shard == m.Name {
				ready, reached, refusals = append(ready, c.ready), append(reached, c.reached), append(refusals, c.refusals...)
			}
		}
		if len(ready) == 0 {
			b.Fatalf("no workspace is on %s", m.Name)
		}
		fmt.Fprintf(&table, "| %s | %d | %s | %s | %s | %s | %s | %v |\n", m.Name, len(ready), ms(percentile(ready, 50)), ms(percentile(ready, 99)), ms(percentile(ready, 100)),
			ms(percentile(reached, 50)), ms(percentile(reached, 100)), refusals)
	}
	return table.String()
}

// reach asks for the cluster by its name through each front until it is answered.
func (c *created) reach(b *testing.B, fronts []*harness.Front, clients []*http.Client) {
	b.Helper()
	began := time.Now()
	for n, f := range fronts {
		for {
			status := get(b, clients[n], f.URL+"/clusters/"+c.cluster+"/api/v1/namespaces/default")
			if status == http.StatusOK {
				break
			}
			c.refusals = append(c.refusals, status)
		}
	}
	c.reached = time.Since(began)
}

func newAsker(b *testing.B, config *rest.Config) *http.Client {
	b.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		b.Fatal(err)
	}
	tlsConfig.MinVersion = tls.VersionTLS12
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(b *testing.B, client *http.Client, url string) int {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// forwarding asks for a ConfigMap, through a front and of the replica itself, in turns.
func forwarding(b *testing.B, i *harness.Installation, f *harness.Front) string {
	b.Helper()
	root := i.Root.Replicas[0]
	if _, err := root.Kube("root").CoreV1().ConfigMaps("default").Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "asked-for"}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	const path = "/clusters/root/api/v1/namespaces/default/configmaps/asked-for"
	direct := func() *http.Client { return newAsker(b, root.Config("")) }
	through := func() *http.Client { return newAsker(b, f.Config("")) }
	var table strings.Builder
	table.WriteString("| requests/s | through the front: p50 | p99 | direct: p50 | p99 | added: p50 | p99 | the front's CPU for each | not 200 |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, rate := range []int{100, 300, 1000} {
		without := askAt(b, rate, direct, root.URL+path)
		before := cpu(b, f.PID())
		with := askAt(b, rate, through, f.URL+path)
		spent := (cpu(b, f.PID()) - before) / time.Duration(len(with.took))
		fmt.Fprintf(&table, "| %d | %s | %s | %s | %s | %s | %s | %d µs | %d |\n", rate, ms(percentile(with.took, 50)), ms(percentile(with.took, 99)), ms(percentile(without.took, 50)), ms(percentile(without.took, 99)),
			ms(percentile(with.took, 50)-percentile(without.took, 50)), ms(percentile(with.took, 99)-percentile(without.took, 99)), spent.Microseconds(), with.faults+without.faults)
	}
	_, metrics := f.Get("/metrics")
	fmt.Fprintf(&table, "\nThe front's own histogram of what it adds:%s\n", histogram(metrics))
	return table.String()
}

// answers are what came of requests.
type answers struct {
	took   []time.Duration
	faults int
}

// askAt makes requests at a rate, whether or not those before were answered. The time of each counts from when it was
// due.
func askAt(b *testing.B, rate int, newClient func() *http.Client, url string) answers {
	b.Helper()
	due := make(chan time.Time, rate)
	var mu sync.Mutex
	var all answers
	var asking sync.WaitGroup
	for range askers {
		client := newClient()
		get(b, client, url) // the connection is there
		for range max(1, rate/askers) {
			asking.Go(func() {
				for at := range due {
					status := get(b, client, url)
					took := time.Since(at)
					mu.Lock()
					if all.took = append(all.took, took); status != http.StatusOK {
						all.faults++
					}
					mu.Unlock()
				}
			})
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), askFor)
	defer cancel()
	for next := time.Now(); ctx.Err() == nil; next = next.Add(time.Second / time.Duration(rate)) {
		time.Sleep(time.Until(next))
		due <- next
	}
	close(due)
	asking.Wait()
	return all
}

func percentile(of []time.Duration, percent int) time.Duration {
	slices.Sort(of)
	return of[min(len(of)-1, len(of)*percent/100)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// cpu returns how much CPU time a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}

// histogram returns the shares of requests below each bound of regent_front_added_seconds, over all shards.
func histogram(metrics string) string {
	below, count := map[string]float64{}, 0.0
	var bounds []string
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(line, "regent_front_added_seconds_bucket{"); ok {
			_, rest, _ = strings.Cut(rest, `le="`)
			bound, rest, _ := strings.Cut(rest, `"}`)
			n, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if _, ok := below[bound]; !ok {
				bounds = append(bounds, bound)
			}
			if below[bound] += n; bound == "+Inf" {
				count += n
			}
		}
	}
	var out strings.Builder
	for _, bound := range bounds {
		fmt.Fprintf(&out, " %.2f%% within %s s,", 100*below[bound]/count, bound)
	}
	return strings.TrimSuffix(out.String(), ",")
}
