package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// fewestRounds is how many rounds each case has, or more if -benchtime says so.
	fewestRounds = 11
	// turns is how often each variant has its turn in a round. Short turns make the two share what else the machine
	// and its disk do meanwhile, which changes from second to second by more than what is measured.
	turns = 20
)

// BenchmarkFencing is what it costs a leader's writers to present their term: the same writes, through the same server,
// with a token and without one, in turns.
func BenchmarkFencing(b *testing.B) {
	bench := startFencingBench(b)
	checked, retries, renewals := bench.metric(b, "regent_fencing_tokens_checked_total"), bench.metric(b, "regent_fencing_retries_total"), bench.lease.renewals.Load()
	var table []string
	for _, operation := range []string{"create", "update"} {
		for _, c := range []fencingCase{{operation, 1, 25}, {operation, 16, 128}, {operation, 64, 128}} {
			b.Run(fmt.Sprintf("%s/writers=%d", c.operation, c.writers), func(b *testing.B) {
				table = append(table, c.compare(b, bench).report(b, c))
			})
		}
	}
	checked, retries = bench.metric(b, "regent_fencing_tokens_checked_total")-checked, bench.metric(b, "regent_fencing_retries_total")-retries
	if terms := bench.server.Terms(); len(terms) != 1 || terms[0].Reason != "" {
		b.Errorf("the replica did not lead all the time: %v", terms)
	}
	fmt.Printf("\n%s%s\n", fencingTableHead, strings.Join(table, ""))
	fmt.Printf("Writes with a token: %.0f; tried again for a renewal: %.0f (regent_fencing_retries_total); renewals of their lease: %d\n\n",
		checked, retries, bench.lease.renewals.Load()-renewals)
}

// fencingBench is a shard of one replica that leads, and its clients.
type fencingBench struct {
	server           *harness.Replica
	fenced, unfenced *variant
	other            *variant // for what is not measured
	lease            *renewedLease
}

func startFencingBench(b *testing.B) *fencingBench {
	shard := harness.NewShard(harness.StartEtcd(b).URL)
	shard.Timings = harness.Default
	server := shard.Start(b, "a")
	harness.Leader(b, server)
	server.WaitRoot()
	bench := &fencingBench{server: server, unfenced: newVariant(b, server.AdminConfig("root")), other: newVariant(b, server.AdminConfig("root"))}
	bench.lease = holdLease(b, server)
	config := server.AdminConfig("root")
	config.Wrap(fence.Transport(fence.Of(bench.lease.token)))
	bench.fenced = newVariant(b, config)
	return bench
}

func (f *fencingBench) metric(b *testing.B, name string) float64 {
	value, ok := f.server.Metric(name)
	if !ok {
		b.Fatalf("the server has no metric %s", name)
	}
	return value
}

// variant is a client with connections of its own.
type variant struct {
	kube  kubernetes.Interface
	dials atomic.Int64
}

// newVariant returns a client for a logical cluster. client-go would let all clients with the same keys share one
// transport, and so one connection; not those with a dialer of their own.
func newVariant(b *testing.B, config *rest.Config) *variant {
	v := &variant{}
	dialer := &net.Dialer{}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		v.dials.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	v.kube = kube
	return v
}

// renewedLease is a term that lasts as long as the benchmark.
type renewedLease struct {
	token    fence.Token
	renewals atomic.Int64
}

// holdLease begins a term and renews it as a leader with the default timings does. The lease is not the shard's, whose
// token only the replica has.
func holdLease(b *testing.B, server *harness.Replica) *renewedLease {
	lease, err := server.Leases().Create(b.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("bench_0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"), LeaseTransitions: ptr.To[int32](1),
			LeaseDurationSeconds: ptr.To(int32(harness.Default.Lease.Seconds())), AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	held := &renewedLease{token: fence.OfLease(lease)}
	config := server.Config("system:admin")
	config.Wrap(fence.Transport(fence.Of(held.token)))
	leases := newVariant(b, config).kube.CoordinationV1().Leases(lease.Namespace)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if err := held.renew(b.Context(), leases, lease); err != nil {
			b.Errorf("renew the lease: %v", err)
		}
	})
	b.Cleanup(renewing.Wait)
	return held
}

// renew renews until ctx ends.
func (h *renewedLease) renew(ctx context.Context, leases coordinationclient.LeaseInterface, lease *coordinationv1.Lease) error {
	tick := time.NewTicker(harness.Default.Retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		lease = renewed
		h.renewals.Add(1)
	}
}

// fencingCase is a row of the table.
type fencingCase struct {
	operation string
	writers   int
	writes    int // of each variant, in each turn
}

// compare measures both variants again and again. Which is first alternates, so that neither has the better half of a
// machine that warms up, or of an etcd that grows.
func (c fencingCase) compare(b *testing.B, bench *fencingBench) comparison {
	w := c.workload(b, bench)
	c.round(b, bench, w, 0) // warms up
	var rounds comparison
	round := func() { rounds = append(rounds, c.round(b, bench, w, len(rounds))) }
	for b.Loop() { // unlike b.N, it does not begin anew
		round()
	}
	for len(rounds) < fewestRounds {
		round()
	}
	if fenced, unfenced := bench.fenced.dials.Load(), bench.unfenced.dials.Load(); fenced != unfenced {
		b.Errorf("%d connections with the token, %d without", fenced, unfenced)
	}
	return rounds
}

func (c fencingCase) round(b *testing.B, bench *fencingBench, w *workload, n int) pair {
	var fenced, unfenced sample
	for turn := range turns {
		both := []func(){
			func() { w.measure(b, bench.fenced, c.writes, &fenced) },
			func() { w.measure(b, bench.unfenced, c.writes, &unfenced) },
		}
		if (n+turn)%2 == 1 {
			slices.Reverse(both)
		}
		both[0]()
		both[1]()
	}
	return pair{fenced.figures(), unfenced.figures()}
}

// workload is what the writers do.
type workload struct {
	writers int
	// write makes the i-th write of a measurement.
	write func(ctx context.Context, v *variant, writer, i int) error
	// undo is called after each measurement, with how many writes it had; it is not measured.
	undo func(ctx context.Context, writes int) error
}

func (c fencingCase) workload(b *testing.B, bench *fencingBench) *workload {
	if c.operation == "create" {
		return creates(c.writers, bench.other)
	}
	return updates(b, c.writers, bench.other)
}

// creates are of fresh names, and deleted again, so that both variants find the same number of objects.
func creates(writers int, deleter *variant) *workload {
	measurement := 0
	name := func(i int) string { return fmt.Sprintf("create-%d-%d-%d", writers, measurement, i) }
	return &workload{
		writers: writers,
		write: func(ctx context.Context, v *variant, _, i int) error {
			_, err := configMaps(v).Create(ctx, newConfigMap(name(i)), metav1.CreateOptions{})
			return err
		},
		undo: func(ctx context.Context, writes int) error {
			const deleters = 32
			_, err := share(deleters, writes, func(_, i int) error {
				return configMaps(deleter).Delete(ctx, name(i), metav1.DeleteOptions{})
			})
			measurement++
			return err
		},
	}
}

// updates are of one object for each writer, of which it has the last version: there are no conflicts.
func updates(b *testing.B, writers int, creator *variant) *workload {
	objects := make([]*corev1.ConfigMap, writers)
	for i := range objects {
		var err error
		if objects[i], err = configMaps(creator).Create(b.Context(), newConfigMap(fmt.Sprintf("update-%d-%d", writers, i)), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	return &workload{
		writers: writers,
		write: func(ctx context.Context, v *variant, writer, _ int) (err error) {
			o := objects[writer]
			n, err := strconv.Atoi(o.Data["n"])
			if err != nil {
				return err
			}
			o.Data["n"] = strconv.Itoa(n + 1)
			objects[writer], err = configMaps(v).Update(ctx, o, metav1.UpdateOptions{})
			return err
		},
		undo: func(context.Context, int) error { return nil },
	}
}

func configMaps(v *variant) coreclient.ConfigMapInterface {
	return v.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": "1000000", "what": strings.Repeat("x", 256)}}
}

// measure makes so many writes with a client, and adds them to what it made before.
func (w *workload) measure(b *testing.B, v *variant, writes int, to *sample) {
	b.Helper()
	runtime.GC() // what the other variant has left is not this one's to clear away
	began := time.Now()
	took, err := share(w.writers, writes, func(writer, i int) error { return w.write(b.Context(), v, writer, i) })
	to.elapsed += time.Since(began)
	to.took = append(to.took, took...)
	if err == nil {
		err = w.undo(b.Context(), writes)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// sample is what was measured of one variant in one round.
type sample struct {
	elapsed time.Duration
	took    []time.Duration // each write
}

func (s sample) figures() figures {
	slices.Sort(s.took)
	return figures{throughput: float64(len(s.took)) / s.elapsed.Seconds(), p99: s.took[len(s.took)*99/100]}
}

// share calls do for 0 to total-1, each writer one after the other, and returns how long each call took. A writer stops
// at its first error.
func share(writers, total int, do func(writer, i int) error) ([]time.Duration, error) {
	var next atomic.Int64
	took, errs := make([][]time.Duration, writers), make([]error, writers)
	var working sync.WaitGroup
	for w := range writers {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < total && errs[w] == nil; i = int(next.Add(1)) - 1 {
				began := time.Now()
				errs[w] = do(w, i)
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	working.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

// figures are those of one variant in one round.
type figures struct {
	throughput float64 // writes a second
	p99        time.Duration
}

// pair is a round. Its variants are compared with each other only, not with those of other rounds: the machine is not
// the same all the time.
type pair struct{ fenced, unfenced figures }

func (p pair) throughputRatio() float64 { return p.fenced.throughput / p.unfenced.throughput }
func (p pair) p99Ratio() float64        { return float64(p.fenced.p99) / float64(p.unfenced.p99) }

// comparison are the rounds of a case.
type comparison []pair

// spread returns the median, the least and the greatest of what the rounds show.
func (c comparison) spread(of func(pair) float64) (median, least, greatest float64) {
	var all []float64
	for _, p := range c {
		all = append(all, of(p))
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]
}

const fencingTableHead = `| operation | writers | fenced, 1/s | unfenced, 1/s | throughput ratio, median (range) | fenced p99 | unfenced p99 | p99 ratio, median (range) |
|---|---|---|---|---|---|---|---|
`

// report reports the metrics, and returns the row of the table.
func (c comparison) report(b *testing.B, of fencingCase) string {
	fenced, _, _ := c.spread(func(p pair) float64 { return p.fenced.throughput })
	unfenced, _, _ := c.spread(func(p pair) float64 { return p.unfenced.throughput })
	fencedP99, _, _ := c.spread(func(p pair) float64 { return milliseconds(p.fenced.p99) })
	unfencedP99, _, _ := c.spread(func(p pair) float64 { return milliseconds(p.unfenced.p99) })
	throughput, slowest, fastest := c.spread(pair.throughputRatio)
	p99, best, worst := c.spread(pair.p99Ratio)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(fenced, "fenced/s")
	b.ReportMetric(unfenced, "unfenced/s")
	b.ReportMetric(throughput, "throughput-ratio")
	b.ReportMetric(p99, "p99-ratio")
	b.ReportMetric(float64(len(c)), "rounds")
	return fmt.Sprintf("| %s | %d | %.0f | %.0f | %.3f (%.3f to %.3f) | %.1f ms | %.1f ms | %.2f (%.2f to %.2f) |\n",
		of.operation, of.writers, fenced, unfenced, throughput, slowest, fastest, fencedP99, unfencedP99, p99, best, worst)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
