package bench

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// machine is where all is measured: an etcd and a shard of two replicas, with root directories of their own, as if they
// were on two machines, unless the shard says otherwise.
type machine struct {
	etcd            *harness.Etcd
	writes          *writes
	leader, standby *harness.Replica
	term            string // the leader's
}

// start starts it, with further flags of both replicas, and returns when one leads and the other stands by.
func start(b *testing.B, args ...string) *machine {
	b.Helper()
	server, err := build()
	if err != nil {
		b.Fatal(err)
	}
	return startServer(b, server, args...)
}

// startServer is start of a server of another make.
func startServer(b *testing.B, server string, args ...string) *machine {
	b.Helper()
	shard := harness.NewShard("")
	shard.Binary, shard.Args = server, args
	return startShard(b, shard)
}

// startShard is start of a shard of whatever kind.
func startShard(b *testing.B, shard *harness.Shard) *machine {
	b.Helper()
	etcd := harness.StartEtcd(b)
	m := &machine{etcd: etcd, writes: follow(b, etcd.Client(b), written, configMap)}
	shard.Etcd, shard.Timings, shard.Args = etcd.URL, harness.Default, append(shard.Args, "--writer=once")
	m.leader = shard.Start(b, "a")
	m.term = m.writes.next(b, history.FirstWrite, "").term
	m.standby = shard.Launch(b, "b")
	m.awaitStandby(b)
	return m
}

// startPlain is start of bin/regent as it is, without a writer: it heeds limits of memory, and shares the CPUs.
func startPlain(b *testing.B) *machine {
	b.Helper()
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	m := &machine{etcd: harness.StartEtcd(b)}
	shard := harness.NewShard(m.etcd.URL)
	shard.Timings = harness.Default
	m.leader = shard.Start(b, "a")
	m.leader.WaitRoot()
	m.standby = shard.Launch(b, "b")
	m.awaitStandby(b)
	return m
}

// build builds what is measured, once, and returns the server's binary. The peers' are beside it, where harness.Binary
// finds them.
var build = sync.OnceValues(func() (server string, err error) {
	if err := harness.Build(); err != nil {
		return "", err
	}
	binaries := filepath.Dir(harness.Binary("regent"))
	peers := exec.Command("go", "build", "-trimpath", "-o", binaries, "./clientgo", "./controllerruntime", "./perterm")
	peers.Stdout, peers.Stderr = os.Stderr, os.Stderr
	if err := peers.Run(); err != nil {
		return "", fmt.Errorf("cannot build the peers: %w", err)
	}
	return harness.BuildGo(binaries, "./test/e2e/faulty")
})

// awaitStandby waits until the one that was started last is ready, which means that its caches are warm, knows who
// leads, and follows its process.
func (m *machine) awaitStandby(b *testing.B) {
	b.Helper()
	m.standby.WaitReady()
	harness.Eventually(b, "the other stands by", func() bool {
		return m.standby.Follows() && len(m.standby.Lines(`"Leader changed"`)) > 0
	})
}

// versions says what was measured, as the binaries have it.
func versions(b *testing.B) string {
	said := []string{regentVersion(b)}
	info, err := buildinfo.ReadFile(harness.Binary("controllerruntime"))
	if err != nil {
		b.Fatal(err)
	}
	for _, dep := range info.Deps {
		if dep.Path == "k8s.io/client-go" || dep.Path == "sigs.k8s.io/controller-runtime" {
			said = append(said, dep.Path+" "+dep.Version)
		}
	}
	return strings.Join(said, ", ")
}

// regentVersion says what was measured of Regent alone.
func regentVersion(b *testing.B) string {
	commit, err := exec.CommandContext(b.Context(), "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return fmt.Sprintf("Regent %s, %s", strings.TrimSpace(string(commit)), runtime.Version())
}

// disk says how long etcd waited for its disk, which every write of every contender does.
func (m *machine) disk(b *testing.B) string {
	metrics := etcdMetrics(b, m.etcd)
	within := func(bucket string) (n float64) {
		_, rest, found := strings.Cut(metrics, `etcd_disk_wal_fsync_duration_seconds_bucket{le="`+bucket+`"} `)
		if _, err := fmt.Sscan(rest, &n); !found || err != nil {
			b.Fatalf("etcd does not say how often it synced within %s: %v", bucket, err)
		}
		return n
	}
	all := within("+Inf")
	return fmt.Sprintf("Of etcd's %.0f log syncs meanwhile, %.2f%% took more than 8 ms, %.2f%% more than 32 ms, %.2f%% more than 128 ms",
		all, 100*(1-within("0.008")/all), 100*(1-within("0.032")/all), 100*(1-within("0.128")/all))
}

func etcdMetrics(b *testing.B, etcd *harness.Etcd) string {
	resp, err := http.Get(etcd.URL + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return string(metrics)
}

// sample is one failover.
type sample struct {
	began time.Time
	took  time.Duration
	load  float64 // the machine's load average when it began
}

// signal sends a signal and waits for the first write of another term.
func (w *writes) signal(b *testing.B, to *harness.Process, s syscall.Signal, name, term string) (sample, write) {
	b.Helper()
	load := loadAverage(b)
	began := time.Now()
	to.Signal(s)
	got := w.next(b, name, term)
	return sample{began: began, took: got.at.Sub(began), load: load}, got
}

// settle waits for at least so long and at most a retry period more, which one cannot know: the signal comes at any
// time between two renewals.
func settle(atLeast time.Duration) { time.Sleep(atLeast + rand.N(harness.Default.Retry)) }

// loadAverage is the machine's of the last minute.
func loadAverage(b testing.TB) (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		b.Fatal(err)
	}
	return load
}
