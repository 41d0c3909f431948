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
	// turn has one of its leaders end by a signal, and measures how long it takes until its successor works. It
	// does not begin before the successor stands by, and leaves no process behind that competes with the next turn.
	turn(b *testing.B, m *machine, s syscall.Signal) sample
}

// ours are the two replicas of the shard, of which the one that ended is started again.
type ours struct{}

func (ours) name() string { return "Regent" }

func (ours) turn(b *testing.B, m *machine, s syscall.Signal) sample {
	settle(300 * time.Millisecond)
	took, first := m.writes.signal(b, m.leader.Process, s, history.FirstWrite, m.term)
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

// place is an API server, by the kubeconfigs of two who use it, and what is written there.
type place struct {
	name        string
	kubeconfigs [2]string
	writes      *writes
}

// place is the shard, through one replica each.
func (m *machine) place() place {
	at := place{name: "Regent", writes: m.writes}
	for i, through := range []*harness.Replica{m.leader, m.standby} {
		at.kubeconfigs[i] = filepath.Join(through.Root, "admin.kubeconfig")
	}
	return at
}

// peer is a program with an elector of its own. Each turn has two new processes, with a Lease of their own.
type peer struct {
	title, binary string
	args          []string
	standsBy      string // what it logs when it stands by and is warm
	turns         *int   // of all peers: each turn has a name of its own
}

func (p peer) name() string { return p.title }

func (p peer) turn(b *testing.B, m *machine, s syscall.Signal) sample { return p.at(b, m.place(), s) }

// at is turn in whatever place.
func (p peer) at(b *testing.B, where place, s syscall.Signal) sample {
	*p.turns++
	name := fmt.Sprintf("%s-%d", p.binary, *p.turns)
	var both []*harness.Process
	for _, kubeconfig := range where.kubeconfigs {
		both = append(both, harness.Start(b, name, harness.Binary(p.binary), append([]string{"--kubeconfig=" + kubeconfig, "--name=" + name}, p.args...)...))
	}
	leads := where.writes.next(b, name, "")
	leader, standby := both[0], both[1]
	if leads.pid == standby.PID() {
		leader, standby = standby, leader
	}
	harness.Eventually(b, "the other stands by", func() bool { return len(standby.Lines(p.standsBy)) > 0 })
	// A stock elector looks every 2 to 4.4 s. By now it has its own pace, whenever it was started.
	settle(4400 * time.Millisecond)
	took, first := where.writes.signal(b, leader, s, name, leads.term)
	if first.pid != standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, standby.PID())
	}
	if s == syscall.SIGSTOP {
		leader.Kill()
	} else if code := leader.Wait(); s == syscall.SIGTERM && code != 0 {
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
		peer{title: "client-go", binary: "clientgo", standsBy: "Standing by", turns: turns},
		peer{title: "client-go, coordinated (by Regent)", binary: "clientgo", args: []string{"--coordinated"}, standsBy: "Standing by", turns: turns},
		peer{title: "controller-runtime", binary: "controllerruntime", args: []string{"--work=" + work}, standsBy: "Standing by", turns: turns},
	}
}
