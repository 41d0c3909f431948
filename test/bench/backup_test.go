package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// backupWriters write ConfigMaps of so many bytes, backupRate times a second together.
	backupWriters, backupRate, backupSize = 4, 100, 700
)

// BenchmarkBackup is what it costs a shard that a backup follows it, while 100 objects are written a second. Turns with
// a backup and without one take turns on the same processes. It prints a table.
func BenchmarkBackup(b *testing.B) {
	if err := harness.Build(); err != nil {
		b.Fatal(err)
	}
	s := startFollowed(b)
	s.turn(b, false) // caches fill
	both := map[bool][]spent{}
	for round := range *backupRounds {
		for n := range 2 {
			with := (n+round)%2 == 1 // none is always the first
			both[with] = append(both[with], s.turn(b, with))
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s.\n\n", spentTable(both), regentVersion(b))
}

// followedShard is a shard of two replicas that may be followed.
type followedShard struct {
	etcd                *harness.Etcd
	serving, standby    *harness.Replica
	directory, profiles string
	kube                kubernetes.Interface
}

func startFollowed(b *testing.B) *followedShard {
	b.Helper()
	files := b.TempDir()
	recipient, err := harness.Command(b, "regent", "backup", "key", filepath.Join(files, "backup.key")).Output()
	if err != nil {
		b.Fatal(err)
	}
	s := &followedShard{etcd: harness.StartEtcd(b), directory: filepath.Join(files, "backup"), profiles: *backupProfiles}
	shard := harness.NewShard(s.etcd.URL)
	shard.Timings = harness.Default
	shard.Args = []string{"--backup-recipients=" + strings.TrimSpace(string(recipient))}
	if s.profiles != "" {
		shard.Args = append(shard.Args, "--profiling")
	}
	s.serving = shard.Start(b, "a")
	s.serving.WaitRoot()
	s.standby = shard.Start(b, "b")
	harness.Eventually(b, "the next stands by", s.standby.Follows)
	if s.kube, err = kubernetes.NewForConfig(s.serving.AdminConfig("root")); err != nil {
		b.Fatal(err)
	}
	for n := range backupWriters {
		if _, err := s.kube.CoreV1().ConfigMaps("default").Create(b.Context(), backupObject(n, 0), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func backupObject(n, value int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("written-", n)}, Data: map[string]string{"n": fmt.Sprint(value), "text": strings.Repeat("x", backupSize)}}
}

// spent is the CPU that each process took in a turn, and how many writes there were.
type spent struct {
	writes                          int64
	serving, standby, etcd, follows time.Duration
	load                            float64
}

// shard is what the processes of the shard took: who follows it may be on another machine.
func (s spent) shard() time.Duration { return s.serving + s.standby + s.etcd }

// each is the shard's CPU of one write.
func (s spent) each() float64 { return float64(s.shard()) / float64(s.writes) }

func (s *followedShard) turn(b *testing.B, with bool) (t spent) {
	b.Helper()
	follows := func() time.Duration { return 0 }
	if with {
		p := harness.Start(b, "backup", harness.Binary("regent"), "backup", "run", s.directory, "--kubeconfig="+filepath.Join(s.serving.Root, "admin.kubeconfig"))
		defer p.Kill()
		since := time.Now()
		harness.Eventually(b, "the backup is up to date", func() bool {
			return harness.Command(b, "regent", "backup", "inspect", s.directory, "--max-age="+time.Since(since).String()).Run() == nil
		})
		follows = p.CPU
	}
	look := func() spent {
		now := spent{serving: s.serving.CPU(), standby: s.standby.CPU(), follows: follows()}
		for _, member := range s.etcd.Members {
			now.etcd += member.CPU()
		}
		return now
	}
	ctx, cancel := context.WithTimeout(b.Context(), *backupFor)
	defer cancel()
	var profile sync.WaitGroup
	if with && s.profiles != "" {
		profile.Go(func() {
			name := fmt.Sprintf("profile?seconds=%d", int(min(backupFor.Seconds(), 15)))
			if err := s.serving.SaveProfile(name, filepath.Join(s.profiles, "backup.cpu")); err != nil {
				b.Error(err)
			}
		})
	}
	before := look()
	t.writes = s.write(ctx, b)
	after := look()
	profile.Wait()
	t.serving, t.standby, t.etcd, t.follows, t.load = after.serving-before.serving, after.standby-before.standby, after.etcd-before.etcd, after.follows-before.follows, loadAverage(b)
	progress("with a backup %v: %+v", with, t)
	return t
}

// write writes until ctx ends.
func (s *followedShard) write(ctx context.Context, b *testing.B) int64 {
	b.Helper()
	var all atomic.Int64
	var writers sync.WaitGroup
	for n := range backupWriters {
		writers.Go(func() {
			tick := time.NewTicker(backupWriters * time.Second / backupRate)
			defer tick.Stop()
			for value := 0; ; value++ {
				select {
				case <-ctx.Done():
					return
				case now := <-tick.C:
					// A turn's CPU is that of whole writes.
					if _, err := s.kube.CoreV1().ConfigMaps("default").Update(b.Context(), backupObject(n, int(now.UnixNano())+value), metav1.UpdateOptions{}); err != nil {
						b.Error(err)
						return
					}
					all.Add(1)
				}
			}
		})
	}
	writers.Wait()
	return all.Load()
}

// spentTable has the means of all turns, for a write, and the ratios of turns that follow each other: other work of the
// machine changes slowly.
func spentTable(both map[bool][]spent) string {
	table := fmt.Sprintf("%d writes a second, %d turns of %v each; CPU of a write, means.\n\n", backupRate, *backupRounds, *backupFor)
	table += "| | writes | replica that serves | other replica | etcd | the shard | who follows | load average |\n|---|---|---|---|---|---|---|---|\n"
	for _, with := range []bool{false, true} {
		var sum spent
		for _, t := range both[with] {
			sum.writes, sum.load = sum.writes+t.writes, sum.load+t.load
			sum.serving, sum.standby, sum.etcd, sum.follows = sum.serving+t.serving, sum.standby+t.standby, sum.etcd+t.etcd, sum.follows+t.follows
		}
		each := func(all time.Duration) string {
			return fmt.Sprintf("%.3f ms", float64(all)/float64(max(1, sum.writes))/float64(time.Millisecond))
		}
		table += fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %.2f |\n", map[bool]string{false: "alone", true: "followed"}[with], sum.writes,
			each(sum.serving), each(sum.standby), each(sum.etcd), each(sum.shard()), each(sum.follows), sum.load/float64(max(1, len(both[with]))))
	}
	var ratios []float64
	for i, alone := range both[false] {
		if i < len(both[true]) && min(alone.writes, both[true][i].writes) > 0 {
			ratios = append(ratios, both[true][i].each()/alone.each())
		}
	}
	if len(ratios) == 0 {
		return table
	}
	slices.Sort(ratios)
	return table + fmt.Sprintf("\nThe shard's CPU of a write, followed to alone, in pairs of turns: median %.3f, all %.3f.\n", (ratios[(len(ratios)-1)/2]+ratios[len(ratios)/2])/2, ratios)
}
