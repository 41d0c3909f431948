package bench

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/proxy"
)

var adoptions = flag.Int("adoptions", 3, "how many leaders of programs that others write to end, in each way")

// ending is what happens to a leader.
type ending int

const (
	askedToEnd ending = iota // SIGTERM
	killed                   // kill -9
	// its machine is gone: nothing comes from it any more, and nothing refuses connections either
	vanished
	paused // SIGSTOP in the middle of its writes, and SIGCONT when another leads
	endings
)

// BenchmarkAdoption is BenchmarkFailover of programs that others write: with stock electors and with ours, beside a
// kube-apiserver as it comes, where nothing is fenced, and beside Regent. It prints one table. Every failover counts.
// examples/leader has the rights that its deploy.yaml gives, and no others.
//
// Nearly all of it is waiting for leases to expire. So all programs of an ending have their turn at the same time, each
// with a Lease of its own.
func BenchmarkAdoption(b *testing.B) {
	m, k, began := start(b), startKubernetes(b), time.Now()
	for _, example := range []string{"leader", "apiserver"} {
		if _, err := harness.BuildModule(filepath.Dir(harness.Binary("regent")), "examples/"+example); err != nil {
			b.Fatal(err)
		}
	}
	deployed, admin, regent := k.place, k.place, m.place()
	for i := range deployed.kubeconfigs {
		deployed.kubeconfigs[i], admin.kubeconfigs[i] = k.deployed(b), k.kubeconfig(b, k.config.BearerToken)
	}
	object := applycorev1.ConfigMap(work, metav1.NamespaceDefault)
	for _, configMaps := range []interface {
		ConfigMaps(namespace string) corev1client.ConfigMapInterface
	}{k.admin.CoreV1(), m.leader.Kube("root").CoreV1()} {
		if _, err := configMaps.ConfigMaps(metav1.NamespaceDefault).Apply(b.Context(), object, metav1.ApplyOptions{FieldManager: "bench"}); err != nil {
			b.Fatal(err)
		}
	}

	var contenders []adopter
	for _, a := range []*adopted{
		{title: "client-go's elector", binary: "clientgo", where: admin},
		{title: "controller-runtime's manager", binary: "controllerruntime", args: []string{"--work=" + work}, where: admin},
		{title: "`clientgo`, the drop-in, as it comes", binary: "clientgo", args: []string{"--drop-in"}, where: admin},
		{title: "`clientgo` with a `Detector` and `SucceedUnfenced`", binary: "clientgo", args: []string{"--drop-in", "--probe-secret=known to all replicas"}, where: admin,
			probe: func(ip, listen, port string) []string {
				return []string{"--advertise-address=" + ip, "--listen=" + net.JoinHostPort(listen, port)}
			}},
		{title: "`leader`, as it comes", binary: "leader", where: deployed, probe: probeFlags},
		{title: "`leader` with `SucceedUnfenced`", binary: "leader", args: []string{"--succeed-unfenced"}, where: deployed, probe: probeFlags},
		{title: "`perterm` with `SucceedUnfenced`", binary: "perterm", args: []string{"--work=" + work, "--succeed-unfenced"}, where: admin, probe: probeFlags},
		{title: "`leader`, `Fenced`", binary: "leader", args: []string{"--fenced", "--cluster=root"}, where: regent, probe: probeFlags},
		{title: "`perterm`, `Fenced`", binary: "perterm", args: []string{"--work=" + work, "--fenced", "--cluster=root"}, where: regent, probe: probeFlags},
	} {
		contenders = append(contenders, a)
	}
	contenders = append(contenders, startSample(b))
	defer func() { // also of a run that fails
		table := adoptionHead
		for _, c := range contenders {
			table += c.row()
		}
		fmt.Printf("\n%s\n%s.\n%s\n", table, versions(b), closing(began))
	}()
	for n := range *adoptions {
		for how := range endings {
			var turns sync.WaitGroup
			for _, c := range contenders {
				turns.Go(func() { c.turn(b, how) })
			}
			turns.Wait()
			if b.Failed() {
				b.FailNow()
			}
			progress("%d of %d of %s, load average %.2f", n+1, *adoptions, how, loadAverage(b))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// String is how a leader ends.
func (e ending) String() string { return [...]string{"SIGTERM", "kill -9", "vanishes", "SIGSTOP"}[e] }

const adoptionHead = `| who | beside | n of each | SIGTERM | kill -9 | its machine vanishes | paused: another leads | late writes of the paused one, each time | load average, mean (range) |
|---|---|---|---|---|---|---|---|---|
`

// adopter is a program that is measured.
type adopter interface {
	// turn has a leader end, and measures how long it takes until its successor works. It leaves no process behind.
	turn(b *testing.B, how ending)
	row() string
}

// adopted is a program in a place.
type adopted struct {
	title, binary string
	args          []string
	where         place
	probe         func(ip, listen, port string) []string // nil: it has none
	outcome
}

func (a *adopted) row() string { return a.in(a.title, a.where.name) }

// outcome is what was measured of a program.
type outcome struct {
	samples [endings][]sample
	late    []int // writes of paused leaders after the first of the next
}

// took notes how long a leader's end took.
func (o *outcome) took(how ending, s sample) { o.samples[how] = append(o.samples[how], s) }

// probeFlags are those of programs that use package leader. Their address is in POD_IP.
func probeFlags(_, listen, port string) []string {
	return []string{"--bind-address=" + listen, "--probe-port=" + port}
}

// in is its row: medians, and in brackets the longest.
func (o *outcome) in(title, beside string) string {
	cells := []string{title, beside, fmt.Sprint(len(o.samples[killed]))}
	var all []sample
	for _, samples := range o.samples {
		took, cell := row{samples: samples}.durations(), "not measured"
		if len(took) > 0 {
			cell = fmt.Sprintf("%s (%s)", show(median(took)), show(slices.Max(took)))
		}
		cells, all = append(cells, cell), append(all, samples...)
	}
	cells = append(cells, strings.Trim(fmt.Sprint(o.late), "[]"))
	if len(all) > 0 {
		cells = append(cells, row{samples: all}.loads())
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

var turnsOfAdoption atomic.Int32

func (a *adopted) turn(b *testing.B, how ending) {
	name := fmt.Sprintf("%s-%d", a.binary, turnsOfAdoption.Add(1))
	var both []*replica
	for _, kubeconfig := range a.where.kubeconfigs {
		both = append(both, a.start(b, name, kubeconfig, how))
	}
	leads := a.where.writes.next(b, name, "")
	leader, standby := both[0], both[1]
	if leads.pid == standby.PID() {
		leader, standby = standby, leader
	}
	standsBy := "Standing by" // what ours with a probe log if they hear the leader
	if a.probe != nil {
		standsBy = "In contact with the leader's process"
	}
	harness.Eventually(b, name+": the other stands by", func() bool { return len(standby.Lines(standsBy)) > 0 })
	settle(4400 * time.Millisecond) // as in peer.at
	load, began := loadAverage(b), time.Now()
	leader.end(how)
	first := a.where.writes.next(b, name, leads.term)
	if first.pid != standby.PID() {
		b.Errorf("%s: process %d made the first write of the next term, and %d stood by", name, first.pid, standby.PID())
	}
	a.took(how, sample{began: began, took: first.at.Sub(began), load: load})
	switch how {
	case askedToEnd:
		if code := leader.Wait(); code != 0 {
			b.Errorf("%s: exit code %d", name, code)
		}
	case paused:
		a.wakeUp(leader.Process, a.where.writes, leads)
	}
	leader.Kill()
	standby.Kill()
}

// wakeUp has a leader go on that was paused, after another one's first write, and counts what it still writes.
func (o *outcome) wakeUp(leader *harness.Process, w *writes, led write) {
	leader.Signal(syscall.SIGCONT)
	time.Sleep(lateFor)
	late := 0
	for got, more := w.waiting(led.name); more; got, more = w.waiting(led.name) {
		if got.term == led.term {
			late++
		}
	}
	o.late = append(o.late, late)
}

// lateFor is how long a leader that was paused is watched: longer than it takes to try to renew.
const lateFor = 5 * time.Second

// replica is a process, and the networks between it and others if it is to vanish.
type replica struct {
	*harness.Process
	networks []*proxy.Proxy
}

func (a *adopted) start(b *testing.B, name, kubeconfig string, how ending) *replica {
	b.Helper()
	r, address, listen := &replica{}, "127.0.0.1", "127.0.0.1"
	port := fmt.Sprint(harness.FreePorts(b, 1)[0])
	if how == vanished {
		address = "127.0.0.2" // where a proxy is
		kubeconfig = r.between(b, kubeconfig)
		if a.probe != nil {
			r.network(b, net.JoinHostPort(address, port), net.JoinHostPort(listen, port))
		}
	}
	command := append([]string{"POD_IP=" + address, harness.Binary(a.binary), "--kubeconfig=" + kubeconfig, "--name=" + name}, a.args...)
	if a.probe != nil {
		command = append(command, a.probe(address, listen, port)...)
	}
	if how == paused {
		command = append(command, "--every=20ms")
	}
	r.Process = harness.Start(b, name, "env", command...)
	return r
}

// network puts one between.
func (r *replica) network(b *testing.B, address, target string) *proxy.Proxy {
	b.Helper()
	p, err := proxy.StartAt(address, target)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	r.networks = append(r.networks, p)
	return p
}

// between puts a network between the process and the server, and returns a kubeconfig that leads through it.
func (r *replica) between(b *testing.B, kubeconfig string) string {
	b.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		b.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		b.Fatal(err)
	}
	server.Host = r.network(b, "127.0.0.1:0", server.Host).Addr()
	cluster.Server = server.String()
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		b.Fatal(err)
	}
	return file
}

// end ends it.
func (r *replica) end(how ending) {
	switch how {
	case askedToEnd:
		r.Signal(syscall.SIGTERM)
	case killed:
		r.Signal(syscall.SIGKILL)
	case paused:
		r.Signal(syscall.SIGSTOP)
	case vanished:
		for _, n := range r.networks {
			n.Stall()
		}
	}
}

// deployed applies the manifests of the example, and returns a kubeconfig of its account.
func (k *kubernetesAPI) deployed(b *testing.B) string {
	b.Helper()
	admin := k.kubeconfig(b, k.config.BearerToken)
	for _, args := range [][]string{
		{"apply", "-n", "default", "-f", harness.File("examples/leader/deploy.yaml")},
		{"create", "token", "example", "-n", "default", "--duration=24h"},
	} {
		command := harness.Command(b, "kubectl", append([]string{"--kubeconfig=" + admin}, args...)...)
		out, err := command.Output()
		if err != nil {
			b.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		if args[0] == "create" {
			return k.kubeconfig(b, strings.TrimSpace(string(out)))
		}
	}
	return ""
}
