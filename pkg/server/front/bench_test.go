package front

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/pki"
)

// BenchmarkIndex is what the index of 100,000 clusters takes, and how soon a front knows them from a snapshot.
func BenchmarkIndex(b *testing.B) {
	const clusters = 100_000
	bundle, err := pki.Ensure(filepath.Join(b.TempDir(), "pki"))
	if err != nil {
		b.Fatal(err)
	}
	membership, err := bundle.NewMembership(pki.Member{Kind: pki.KindFront, Name: "f"}, pki.RootShard{Name: "root", URLs: []string{"https://127.0.0.1:1"}})
	if err != nil {
		b.Fatal(err)
	}
	f, err := New(Config{Membership: membership, SnapshotFile: filepath.Join(b.TempDir(), "snapshot"), SnapshotAge: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	root, err := newShard(f.cfg, "root", "", membership.Root.URLs)
	if err != nil {
		b.Fatal(err)
	}
	f.shards["root"] = root
	before := heap()
	for n := range clusters {
		f.index.set(logicalcluster.Name(fmt.Sprintf("c%015d", n)), entry{shard: "root", path: fmt.Sprintf("root:team-%d:ws-%d", n%1000, n)})
	}
	size := float64(heap()-before) / (1 << 20)
	if err := f.writeSnapshot(); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	for b.Loop() {
		again, err := New(f.cfg)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		again.restore(b.Context())
		took += time.Since(began)
		if at, ok := again.index.find(logicalcluster.NewPath("root:team-7:ws-7")); !ok || at.shard != "root" {
			b.Fatalf("found %v", at)
		}
	}
	b.ReportMetric(size, "MiB")
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/snapshot")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
