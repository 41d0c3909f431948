package storage_test

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// cpu returns the CPU time that this process has used. It includes that of the etcd in it.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWriteBesideWatchers is the CPU that a write costs, embedded etcd included, with one watcher in each of many
// other clusters (I12).
func BenchmarkWriteBesideWatchers(b *testing.B) {
	const writes = 300
	for _, watchers := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			layers := openFilled(b)
			for i := range watchers {
				follow(b, layers, logicalcluster.Name(fmt.Sprintf("c%d", i)), upstream.Everything)
			}
			here := follow(b, layers, "here", upstream.Everything)
			before := cpu()
			var writing sync.WaitGroup
			writing.Go(func() { put(b, layers, "here", "x", writes) })
			if got := len(receive(here, writes)); got != writes {
				b.Fatalf("the watcher in the cluster got %d of %d events", got, writes)
			}
			writing.Wait()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64((cpu()-before).Microseconds())/writes, "cpu-µs/write")
		})
	}
}

// BenchmarkListBesideOthers is the CPU that a list of one cluster's ten objects costs, from the watch cache, beside
// 100,000 objects of other clusters (I12).
func BenchmarkListBesideOthers(b *testing.B) {
	const lists = 20_000
	for _, others := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			layers := openFilled(b)
			put(b, layers, "here", "x", 10)
			var writing sync.WaitGroup
			const writers = 32
			for w := range writers {
				writing.Go(func() { put(b, layers, logicalcluster.Name(fmt.Sprintf("c%d", w)), "x", others/writers) })
			}
			writing.Wait()
			runtime.GC()
			options := upstream.ListOptions{ResourceVersion: "0", Predicate: upstream.Everything, Recursive: true}
			before := cpu()
			for range lists {
				var list corev1.ConfigMapList
				if err := layers.GetList(clusters.With(b.Context(), "here"), configMaps, options, &list); err != nil || len(list.Items) != 10 {
					b.Fatal(len(list.Items), err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/1000/lists, "cpu-µs/list")
		})
	}
}
