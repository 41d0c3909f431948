package bench

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

var adoptions = flag.Int("adoptions", 5, "how many leaders of programs that others write to kill, to ask to stop, and to stop in their tracks")

// BenchmarkAdoption is BenchmarkFailover of programs that others write: with stock electors and with ours, beside a kube-apiserver as it comes, where nothing is
// fenced, and beside Regent. What runs beside the kube-apiserver has the rights that examples/leader/deploy.yaml gives, and no others.
func BenchmarkAdoption(b *testing.B) {
	m, k, began := start(b), startKubernetes(b), time.Now()
	for _, example := range []string{"leader", "manager"} {
		if _, err := harness.BuildModule(filepath.Dir(harness.Binary("regent")), "examples/"+example); err != nil {
			b.Fatal(err)
		}
	}
	plain := k.place
	for i := range plain.kubeconfigs {
		plain.kubeconfigs[i] = k.deployed(b)
	}
	regent := m.place()
	admin := k.place
	for i := range admin.kubeconfigs {
		admin.kubeconfigs[i] = k.kubeconfig(b, k.config.BearerToken)
	}
	object := applycorev1.ConfigMap(work, metav1.NamespaceDefault)
	if _, err := k.admin.CoreV1().ConfigMaps(metav1.NamespaceDefault).Apply(b.Context(), object, metav1.ApplyOptions{FieldManager: "bench"}); err != nil {
		b.Fatal(err)
	}
	if _, err := m.leader.Kube("root").CoreV1().ConfigMaps(metav1.NamespaceDefault).Apply(b.Context(), object, metav1.ApplyOptions{FieldManager: "bench"}); err != nil {
		b.Fatal(err)
	}

	turns := new(int)
	at := func(where place, title, binary string, args ...string) *adopted {
		p := peer{title: title + ", " + where.name, binary: binary, args: args, standsBy: "Standing by", turns: turns}
		if binary == "leader" || binary == "manager" {
			p.standsBy = "The probe is open"
		}
		return &adopted{peer: p, where: where}
	}
	contenders := []*adopted{
		at(plain, "client-go", "clientgo"),
		at(admin, "controller-runtime", "controllerruntime", "--work="+work),
		at(plain, "package leader, unfenced", "leader"),
		at(plain, "package leader, unfenced succession allowed", "leader", "--succeed-unfenced"),
		at(regent, "package leader, fenced", "leader", "--fenced"),
		at(admin, "package perterm, unfenced succession allowed", "manager", "--succeed-unfenced"),
		at(regent, "package perterm, fenced", "manager", "--fenced"),
	}
	events := []struct {
		name   string
		signal syscall.Signal
	}{{"SIGTERM", syscall.SIGTERM}, {"kill -9", syscall.SIGKILL}, {"SIGSTOP", syscall.SIGSTOP}}
	defer func() { // also of a run that fails
		table := tableHead
		for i, e := range events {
			for _, c := range contenders {
				table += row{event: e.name, name: c.title, samples: c.samples[i]}.String()
			}
		}
		fmt.Printf("\n%s\n%s.\n%s\n", table, versions(b), closing(began))
	}()
	for n := range *adoptions {
		for i, e := range events {
			for _, c := range contenders {
				c.samples[i] = append(c.samples[i], c.at(b, c.where, e.signal))
				progress("%s, %s, %d of %d: %s", e.name, c.title, n+1, *adoptions, show(c.samples[i][n].took))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// adopted is a program in a place.
type adopted struct {
	peer
	where   place
	samples [3][]sample // by event
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
