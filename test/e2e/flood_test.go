package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// floodTokens are the users of the tenants. Each has been let into one cluster.
const floodTokens = "t-flood,flooder,1\nt-quiet,quiet,2\n"

// A tenant has a thousand requests under way all the time, lists of everything among them, and a hundred watches. None
// of another tenant's requests fails, and the leader goes on. How long they take is printed, and not judged:
// BenchmarkFlood does that.
func TestAFloodOfOneTenantFailsNoRequestOfAnother(t *testing.T) {
	f := startFloods(t)
	quiet := f.others(t, 5*time.Second, floodArgs{})
	flooded := f.others(t, 10*time.Second, floodArgs{requests: 1000, watches: 100, pause: 100 * time.Millisecond, nice: 19})
	for _, phase := range []phase{quiet, flooded} {
		t.Log(phase)
		for _, err := range phase.failed {
			t.Errorf("a request of another tenant: %v", err)
		}
	}
	if flooded.flood.Statuses["200"] == 0 {
		t.Errorf("the flood was told %v: it was none", flooded.flood.Statuses)
	}
	f.stillLeads(t)
}

// BenchmarkFlood prints how much slower one tenant's requests are while another floods the shard. The flood comes from
// a process of its own, of a lower priority than the server's, because both share the machine; the first case is what
// it costs that the machine is busy.
func BenchmarkFlood(b *testing.B) {
	busy := floodCase{"nothing is asked for, and the CPU is busy", floodArgs{burn: true, nice: 19}}
	tenfold := floodCase{"240 requests under way, ten for each place of two CPUs", floodArgs{requests: 240, nice: 19}}
	b.Run("shared", func(b *testing.B) {
		f := startFloods(b)
		f.compare(b, busy, tenfold,
			floodCase{"1,000 requests under way, refused ones again after 0.1 s", floodArgs{requests: 1000, pause: 100 * time.Millisecond, nice: 19}},
			floodCase{"1,000 requests under way, refused ones again at once", floodArgs{requests: 1000, nice: 19}},
			floodCase{"240 requests under way, and 500 watches", floodArgs{requests: 240, watches: 500, nice: 19}},
			floodCase{"240 requests under way, by a load of the same priority", floodArgs{requests: 240}},
		)
		f.compareSeldom(b, floodArgs{requests: 240, watches: 500, nice: 19})
		f.stillLeads(b)
	})
	b.Run("without-limits", func(b *testing.B) {
		startFloods(b, "--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--max-requests-inflight-per-cpu=0").compare(b, busy, tenfold)
	})
}

// floodCase is a flood with a name.
type floodCase struct {
	name string
	floodArgs
}

// compare prints how the quiet tenant fares beside floods, and without.
func (f *floods) compare(b *testing.B, cases ...floodCase) {
	const each = 10 * time.Second
	quiet := f.others(b, each, floodArgs{})
	fmt.Printf("\nquiet: %s\n", quiet)
	for _, c := range cases {
		got := f.others(b, each, c.floodArgs)
		fmt.Printf("%s: %s\n   p50 %.1f times, p99 %.1f times the quiet one; the flood: %s\n", c.name, got,
			float64(got.at(0.5))/float64(quiet.at(0.5)), float64(got.at(0.99))/float64(quiet.at(0.99)), got.flood.in(each))
		if len(got.failed) > 0 {
			b.Errorf("%s: %d failed, such as %v", c.name, len(got.failed), got.failed[0])
		}
	}
	f.stillLeads(b)
}

// compareSeldom prints how the quiet tenant fares if it asks so seldom that the flood counts as alone meanwhile, and
// without the flood.
func (f *floods) compareSeldom(b *testing.B, args floodArgs) {
	const times, pause = 6, 12 * time.Second // a tenant is alone after ten
	for _, args := range []floodArgs{{}, args} {
		end := f.start(b, args)
		var p phase
		for range times {
			time.Sleep(pause)
			for n := range 5 {
				began := time.Now()
				if err := f.ask(b.Context(), n); err != nil {
					b.Errorf("the quiet tenant: %v", err)
				}
				p.took = append(p.took, time.Since(began))
			}
		}
		slices.Sort(p.took)
		p.flood = end()
		fmt.Printf("five requests each %v: %s; the flood: %s\n", pause, p, p.flood.in(times*pause))
	}
}

// floods is a shard with two tenants, one of which has much to list.
type floods struct {
	shard         *harness.Replica
	binary        string
	greedy, quiet string // clusters
	client        kubernetes.Interface
	terms         int
}

func startFloods(t testing.TB, flags ...string) *floods {
	t.Helper()
	binary := harness.Program(t, "flood")
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default
	shard.Args = append(flags, "--token-auth-file="+write(t, "tokens.csv", floodTokens))
	f := &floods{binary: binary, shard: shard.Start(t, "a")}
	harness.Leader(t, f.shard)
	f.shard.WaitRoot()
	f.greedy, f.quiet = f.tenant(t, "greedy", "flooder"), f.tenant(t, "quiet", "quiet")
	config := &rest.Config{Host: f.shard.URL + "/clusters/" + f.quiet, BearerToken: "t-quiet", QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: f.shard.Config("").CAFile}}
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return onlyOnce{next} }
	var err error
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	f.terms = len(f.shard.Terms())
	return f
}

// tenant makes a workspace with much in it, and lets a user work there. It returns its cluster.
func (f *floods) tenant(t testing.TB, workspace, user string) (cluster string) {
	t.Helper()
	f.shard.CreateWorkspace(workspace)
	cluster = f.shard.WaitWorkspace(workspace)
	if _, err := harness.Bind(t.Context(), f.shard.Kube(cluster), harness.User(user), "system:kcp:workspace:access", "edit"); err != nil {
		t.Fatal(err)
	}
	f.fill(t, cluster)
	return cluster
}

// onlyOnce makes client-go try nothing again: a refused request is a failed one.
type onlyOnce struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o onlyOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// fill writes what floods list: 500 objects of 1 KiB.
func (f *floods) fill(t testing.TB, cluster string) {
	t.Helper()
	configMaps := f.shard.Kube(cluster).CoreV1().ConfigMaps("default")
	var filling sync.WaitGroup
	for worker := range 8 {
		filling.Go(func() {
			for n := worker; n < 500; n += 8 {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("flooded-", n)}, Data: map[string]string{"a": strings.Repeat("x", 1024)}}
				if _, err := configMaps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// stillLeads fails the test if the replica has not led in one term all the time.
func (f *floods) stillLeads(t testing.TB) {
	t.Helper()
	if terms := f.shard.Terms(); len(terms) != f.terms || terms[len(terms)-1].Reason != "" {
		t.Errorf("terms: %v, want the first one to go on", terms)
	}
}

// floodArgs say what the other tenant does. Zero: nothing.
type floodArgs struct {
	requests, watches int
	pause             time.Duration
	nice              int
	burn, harm        bool
}

// floodCounts are what a flood prints.
type floodCounts struct {
	Statuses map[string]int
	Bytes    int64
	CPU      time.Duration
}

func (f floodCounts) in(while time.Duration) string {
	return fmt.Sprintf("%v answers, %d MiB, its own CPU time %.2f cores", f.Statuses, f.Bytes>>20, f.CPU.Seconds()/while.Seconds())
}

// phase is how the quiet tenant fared.
type phase struct {
	took   []time.Duration // sorted
	failed []error
	flood  floodCounts
}

func (p phase) at(share float64) time.Duration {
	return p.took[int(share*float64(len(p.took)-1))]
}

func (p phase) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d requests, %d failed, p50 %v, p99 %v, longest %v", len(p.took), len(p.failed), round(p.at(0.5)), round(p.at(0.99)), round(p.at(1)))
}

// quietRate is how many requests the quiet tenant makes per second.
const quietRate = 50

// others has the quiet tenant ask for a while, beside a flood. Its requests begin when they are due, however long those
// before them take.
func (f *floods) others(t testing.TB, while time.Duration, args floodArgs) phase {
	t.Helper()
	end := f.start(t, args)
	var p phase
	var mu sync.Mutex
	var asking sync.WaitGroup
	tick := time.NewTicker(time.Second / quietRate)
	defer tick.Stop()
	for n := range int(while.Seconds() * quietRate) {
		<-tick.C
		asking.Go(func() {
			began := time.Now()
			err := f.ask(t.Context(), n)
			mu.Lock()
			defer mu.Unlock()
			p.took = append(p.took, time.Since(began))
			if err != nil {
				p.failed = append(p.failed, err)
			}
		})
	}
	asking.Wait()
	slices.Sort(p.took)
	p.flood = end()
	return p
}

// ask makes one of the quiet tenant's requests.
func (f *floods) ask(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	configMaps := f.client.CoreV1().ConfigMaps("default")
	switch n % 5 {
	case 0:
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "quiet-"}}, metav1.CreateOptions{})
		return err
	case 1:
		_, err := configMaps.List(ctx, metav1.ListOptions{Limit: 100})
		return err
	}
	_, err := configMaps.Get(ctx, "flooded-1", metav1.GetOptions{})
	return err
}

// start starts a flood. end ends it.
func (f *floods) start(t testing.TB, args floodArgs) (end func() floodCounts) {
	t.Helper()
	if args == (floodArgs{}) {
		return func() floodCounts { return floodCounts{} }
	}
	flood := exec.CommandContext(t.Context(), f.binary, "--url="+f.shard.URL+"/clusters/"+f.greedy, "--token=t-flood",
		fmt.Sprintf("--requests=%d", args.requests), fmt.Sprintf("--watches=%d", args.watches), fmt.Sprintf("--pause=%v", args.pause),
		fmt.Sprintf("--nice=%d", args.nice), fmt.Sprintf("--burn=%t", args.burn), fmt.Sprintf("--harm=%t", args.harm))
	var said strings.Builder
	flood.Stdout = &said
	stdin, err := flood.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (out floodCounts) {
		t.Helper()
		_ = stdin.Close()
		if err := flood.Wait(); err != nil {
			t.Fatalf("the flood: %v", err)
		}
		if err := json.NewDecoder(strings.NewReader(said.String())).Decode(&out); err != nil && err != io.EOF {
			t.Fatalf("the flood said %q: %v", said.String(), err)
		}
		return out
	}
}
