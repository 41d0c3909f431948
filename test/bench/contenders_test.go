package bench

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// contender is one of those that are compared.
type contender interface {
	name() string
	// turn has one of its leaders end by a signal, and measures how long it takes until its successor works. It does not
	// begin before the successor stands by, and leaves no process behind that competes with the next turn.
	turn(b *testing.B, m *machine, s syscall.Signal) sample
}

// ours are the two replicas of the shard, of which the one that ended is started again.
type ours struct{}

func (ours) name() string { return "Regent" }

func (ours) turn(b *testing.B, m *machine, s syscall.Signal) sample {
	settle(300 * time.Millisecond)
	took, first := m.signal(b, m.leader.Process, s, history.FirstWrite, m.term)
	if first.pid != m.standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, m.standby.PID())
	}
	if code := m.leader.Wait(); s == syscall.SIGTERM && code != 0 {
		b.Errorf("exit code %d", code)
	}
	m.leader, m.standby, m.term = m.standby, m.leader, first.term
	m.standby.Again()
	m.awaitStandby(b)
	return took
}

// peer is a program with a stock elector. Each turn has two new processes, with a Lease of their own, through one replica
// each.
type peer struct {
	title, binary string
	args          []string
	turns         *int // of all peers: each turn has a name of its own
}

func (p peer) name() string { return p.title }

func (p peer) turn(b *testing.B, m *machine, s syscall.Signal) sample {
	*p.turns++
	name := fmt.Sprintf("%s-%d", p.binary, *p.turns)
	var both []*harness.Process
	for _, through := range []*harness.Replica{m.leader, m.standby} {
		args := append([]string{"--kubeconfig=" + filepath.Join(through.Root, "admin.kubeconfig"), "--name=" + name}, p.args...)
		both = append(both, harness.Start(b, name, harness.Binary(p.binary), args...))
	}
	leads := m.writes.next(b, name, "")
	leader, standby := both[0], both[1]
	if leads.pid == standby.PID() {
		leader, standby = standby, leader
	}
	harness.Eventually(b, "the other stands by", func() bool { return len(standby.Lines("Standing by")) > 0 })
	// A stock elector looks every 2 to 4.4 s. By now it has its own pace, whenever it was started.
	settle(4400 * time.Millisecond)
	took, first := m.signal(b, leader, s, name, leads.term)
	if first.pid != standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, standby.PID())
	}
	if code := leader.Wait(); s == syscall.SIGTERM && code != 0 {
		b.Errorf("%s: exit code %d", name, code)
	}
	standby.Kill()
	return took
}

// work is the ConfigMap that controller-runtime's controller reconciles.
const work = "work"

// contenders are all of them.
func contenders(b *testing.B, m *machine) (us contender, others []contender) {
	b.Helper()
	configMaps := m.leader.Kube("root").CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := configMaps.Apply(b.Context(), applycorev1.ConfigMap(work, metav1.NamespaceDefault), metav1.ApplyOptions{FieldManager: "bench"}); err != nil {
		b.Fatal(err)
	}
	turns := new(int)
	return ours{}, []contender{
		peer{title: "client-go", binary: "clientgo", turns: turns},
		peer{title: "client-go, coordinated (by Regent)", binary: "clientgo", args: []string{"--coordinated"}, turns: turns},
		peer{title: "controller-runtime", binary: "controllerruntime", args: []string{"--work=" + work}, turns: turns},
	}
}
