package bench

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	mcrClusters = flag.Int("mcr-clusters", 1000, "how many clusters a manager of multicluster-runtime has")
	mcrKills    = flag.Int("mcr-kills", 5, "how many of its processes to kill, with each coordinator")
	mcrSettles  = flag.Duration("mcr-settles", 45*time.Second, "how long to wait until nothing moves any more")
	mcrLooks    = flag.Duration("mcr-looks", 30*time.Second, "for how long to count writes of Leases")
)

// BenchmarkMulticluster is package mcr beside multicluster-runtime's own sharded coordinator, three processes each, in
// turns, at one kube-apiserver as it comes: how many Leases are written, and how long it takes after kill -9 of one
// process until each of its clusters is reconciled by another.
func BenchmarkMulticluster(b *testing.B) {
	if err := makeKubernetes(); err != nil {
		b.Fatal(err)
	}
	began, binary := time.Now(), b.TempDir()+"/multicluster"
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	build.Dir = "multicluster" // a module of its own: multicluster-runtime needs an older controller-runtime
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build it: %v\n%s", err, out)
	}
	etcd, accounts := harness.StartEtcd(b), newAccounts(b)
	_, config := accounts.serve(b, "kube-apiserver", harness.Binary("kube-apiserver"), etcd.URL)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	c := &multicluster{etcd: etcd.Client(b), binary: binary, kubeconfig: kubeconfig(b, config.Host, accounts.token)}
	c.fill(b, client)
	rows := []struct {
		name   string
		args   []string
		writes []float64
		took   []time.Duration
	}{{name: "`mcr`, SucceedUnfenced", args: []string{"--probe-secret=known to all of them"}}, {name: "its own sharded coordinator", args: []string{"--sharded"}}}
	for n := range *mcrKills {
		for i := range rows {
			row := &rows[i]
			writes, took := c.turn(b, fmt.Sprintf("%d-%d", i, n), row.args)
			row.writes, row.took = append(row.writes, writes), append(row.took, took...)
			progress("%d of %d: %s: %.1f writes a second, %s in the median, %s at most", n+1, *mcrKills, row.name, writes, show(median(took)), show(slices.Max(took)))
		}
	}
	fmt.Printf("\n%d clusters, 3 processes, %d kills each.\n\n| coordinator | Leases written a second | kill -9 to the first reconcile of each cluster: median | p99 | most | clusters |\n|---|---|---|---|---|---|\n", *mcrClusters, *mcrKills)
	for _, r := range rows {
		fmt.Printf("| %s | %.1f | %s | %s | %s | %d |\n", r.name, slices.Max(r.writes), show(median(r.took)), show(percentile(r.took, 99)), show(slices.Max(r.took)), len(r.took))
	}
	fmt.Printf("\nRatio of the medians: %.0f.\n%s\n", float64(median(rows[1].took))/float64(median(rows[0].took)), closing(began))
	b.ReportMetric(0, "ns/op")
}

type multicluster struct {
	etcd               *clientv3.Client
	binary, kubeconfig string
}

// fill makes the clusters, with an object each.
func (c *multicluster) fill(b *testing.B, client kubernetes.Interface) {
	b.Helper()
	for i := range *mcrClusters {
		name := fmt.Sprintf("cluster-%d", i)
		_, err := client.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			_, err = client.CoreV1().ConfigMaps(name).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// turn starts three processes, counts what they write when nothing moves any more, kills one of them, and returns after
// how long each of its clusters was reconciled by another.
func (c *multicluster) turn(b *testing.B, name string, args []string) (writes float64, took []time.Duration) {
	b.Helper()
	leases := "leases-" + name
	config, err := clientOf(c.kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := config.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leases}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	var processes []*harness.Process
	for i := range 3 {
		peer := fmt.Sprintf("peer-%s-%d", name, i)
		processes = append(processes, harness.Start(b, peer, c.binary, append([]string{"--kubeconfig=" + c.kubeconfig, "--name=" + peer, "--leases=" + leases}, args...)...))
	}
	harness.Eventually(b, "each cluster is reconciled", func() bool {
		n := 0
		for _, p := range processes {
			n += len(reconciles(b, p))
		}
		return n >= *mcrClusters
	})
	settle(*mcrSettles)
	writes = c.count(b, leases) / mcrLooks.Seconds()
	last, owner := map[string]int64{}, map[string]*harness.Process{}
	for _, p := range processes {
		for cluster, at := range reconciles(b, p) {
			if at > last[cluster] {
				last[cluster], owner[cluster] = at, p
			}
		}
	}
	victim := processes[0]
	killed := time.Now()
	victim.Signal(syscall.SIGKILL)
	var left []string
	for cluster, p := range owner {
		if p == victim {
			left = append(left, cluster)
		}
	}
	again := map[string]time.Duration{}
	harness.Eventually(b, fmt.Sprintf("each of %d clusters is reconciled by another", len(left)), func() bool {
		for _, p := range processes[1:] {
			for cluster, at := range reconciles(b, p) {
				if after := time.Unix(0, at).Sub(killed); after > 0 && owner[cluster] == victim && again[cluster] == 0 {
					again[cluster] = after
				}
			}
		}
		return len(again) == len(left)
	})
	for _, after := range again {
		took = append(took, after)
	}
	for _, p := range processes {
		p.Kill()
	}
	return writes, took
}

// count returns how often Leases of a namespace are written while it looks.
func (c *multicluster) count(b *testing.B, leases string) (n float64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), *mcrLooks)
	defer cancel()
	for events := range c.etcd.Watch(clientv3.WithRequireLeader(ctx), "/registry/leases/"+leases+"/", clientv3.WithPrefix()) {
		n += float64(len(events.Events))
	}
	return n
}

// reconciles returns when a process last reconciled each cluster of the benchmark.
func reconciles(b *testing.B, p *harness.Process) map[string]int64 {
	b.Helper()
	at := map[string]int64{}
	for _, line := range p.Lines("reconcile cluster-") {
		if fields := strings.Fields(line); len(fields) == 3 {
			if nanoseconds, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
				at[fields[1]] = nanoseconds
			}
		}
	}
	return at
}

func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
