package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkNeedless counts takeovers where there should be none, with default flags: nothing happens; all cores are
// busy with something else; etcd is at its limit; a standby is paused now and then. It prints a table.
// -needless-together has the last three at the same time, in shards of their own, which is harder for each.
func BenchmarkNeedless(b *testing.B) {
	troubles := []trouble{
		{"nothing", func(context.Context, *testing.B, *machine) {}},
		{"all cores busy with 4 other processes each", busyCores},
		{"etcd at its limit", busyEtcd},
		{"the standby is paused now and then", pauses},
	}
	began, table := time.Now(), needlessHead
	if *needlessTogether {
		table += needless(b, troubles[1:]...)
		table += needless(b, troubles[0])
	} else {
		for _, t := range troubles {
			table += needless(b, t)
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s.\n%s\n", table, versions(b), closing(began))
}

// trouble is what may look like a leader's death. It goes on until ctx ends.
type trouble struct {
	name string
	make func(ctx context.Context, b *testing.B, m *machine)
}

const needlessHead = `| trouble | for | takeovers | why | the longest silence that was allowed | load average |
|---|---|---|---|---|---|
`

// needless makes troubles at the same time, each for a shard of its own, and returns a row for each.
func needless(b *testing.B, troubles ...trouble) (rows string) {
	b.Helper()
	var shards []*machine
	for range troubles {
		shards = append(shards, start(b))
	}
	ctx, stop := context.WithTimeout(b.Context(), *needlessFor)
	defer stop()
	first := make([]int32, len(troubles))
	for i, m := range shards {
		first[i] = *m.leader.Lease().Spec.LeaseTransitions
	}
	var making sync.WaitGroup
	for i, t := range troubles {
		making.Go(func() { t.make(ctx, b, shards[i]) })
	}
	began, allowed, load := time.Now(), make([]float64, len(troubles)), 0.0
	for ctx.Err() == nil {
		time.Sleep(min(15*time.Second, *needlessFor))
		load = max(load, loadAverage(b))
		for i, m := range shards {
			allowed[i] = max(allowed[i], m.standby.MetricSum("regent_failure_detection_allowed_silence_seconds"))
		}
	}
	making.Wait()
	for i, t := range troubles {
		m := shards[i]
		var why []string
		for _, replica := range []*harness.Replica{m.leader, m.standby} {
			terms := replica.Terms()
			if replica == m.leader && len(terms) > 0 {
				terms = terms[:len(terms)-1] // the one that should be there
			}
			for _, term := range terms {
				why = append(why, fmt.Sprintf("%s: %s", replica.Name(), term.Reason))
			}
		}
		rows += fmt.Sprintf("| %s | %s | %d | %s | %.1f s | %.1f |\n", t.name, show(time.Since(began)), *m.leader.Lease().Spec.LeaseTransitions-first[i],
			strings.Join(why, "; "), allowed[i], load)
	}
	progress("%s", rows)
	for _, m := range shards {
		m.leader.Kill()
		m.standby.Kill()
		m.etcd.Kill()
	}
	return rows
}

// busyCores runs four processes for each core that do nothing else but count.
func busyCores(ctx context.Context, b *testing.B, _ *machine) {
	var all []*harness.Process
	for i := range 4 * runtime.NumCPU() {
		all = append(all, harness.Start(b, fmt.Sprintf("busy-%d", i), "/bin/sh", "-c", "while :; do :; done"))
	}
	<-ctx.Done()
	for _, p := range all {
		p.Kill()
	}
}

// busyEtcd writes as much as etcd takes.
func busyEtcd(ctx context.Context, b *testing.B, m *machine) {
	client := m.etcd.Client(b)
	value := strings.Repeat("x", 4096)
	var writers sync.WaitGroup
	for i := range 64 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = client.Put(ctx, fmt.Sprintf("/busy/%d/%d", i, n%16), value)
			}
		})
	}
	writers.Go(func() { // or the history would fill etcd's quota
		for ctx.Err() == nil {
			if resp, err := client.Get(ctx, "/busy/", clientv3.WithCountOnly(), clientv3.WithPrefix()); err == nil {
				_, _ = client.Compact(ctx, resp.Header.Revision)
			}
			time.Sleep(5 * time.Second)
		}
	})
	writers.Wait()
}

// pauses stops the standby for up to 20 s, again and again.
func pauses(ctx context.Context, _ *testing.B, m *machine) {
	for ctx.Err() == nil {
		sleep(ctx, rand.N(20*time.Second))
		m.standby.Signal(syscall.SIGSTOP)
		sleep(ctx, rand.N(20*time.Second))
		m.standby.Signal(syscall.SIGCONT)
	}
	m.standby.WaitReady()
}

// sleep returns after some time, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
