package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/regenttest"
)

// asManager, in the environment, makes this binary the program.
const asManager = "TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const lease = "manager.example.com"

// manager is a process of the program.
type manager struct {
	*exec.Cmd
	ended   chan struct{}
	log     string
	metrics string
}

// startManager starts one that works in a workspace. It ends with the test.
func startManager(t *testing.T, w *regenttest.Workspace, name string) *manager {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	m := &manager{ended: make(chan struct{}), log: filepath.Join(t.TempDir(), name+".log"), metrics: "http://" + address + "/metrics"}
	m.Cmd = exec.Command(os.Args[0], "--cluster="+w.Cluster, "--metrics-bind-address="+address) //nolint:gosec,noctx // this binary, which ends with the test
	m.Env = append(os.Environ(), asManager+"=1", "POD_IP=127.0.0.1", "KUBECONFIG="+regenttest.Kubeconfig(t, w.Config))
	log, err := os.Create(m.log)
	must(t, err)
	defer func() { _ = log.Close() }()
	m.Stdout, m.Stderr = log, log
	must(t, m.Start())
	go func() {
		_ = m.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		_ = m.Process.Kill()
		<-m.ended
		if t.Failed() {
			said, _ := os.ReadFile(m.log)
			t.Logf("---- %s said:\n%s", name, said)
		}
	})
	return m
}

func (m *manager) isAlive() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// metric returns a sample of /metrics, -1 if it is not there.
func (m *manager) metric(sample string) float64 {
	resp, err := http.Get(m.metrics) //nolint:noctx // of this machine
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), sample+" "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				return v
			}
		}
	}
	return -1
}

func (m *manager) leads() bool {
	return m.metric(fmt.Sprintf("leader_election_master_status{name=%q}", lease)) == 1
}

// expiries is how often it has led because a lease had expired.
func (m *manager) expiries(t *testing.T) (n int) {
	t.Helper()
	said, err := os.ReadFile(m.log)
	must(t, err)
	for line := range bytes.Lines(said) {
		if bytes.Contains(line, []byte(`"Leading"`)) && bytes.Contains(line, []byte("expired")) {
			n++
		}
	}
	return n
}

// Leases that are taken away end terms and no process, nothing of a term is left, and a killed leader is succeeded at
// once.
func TestAManagerLeadsTermAfterTerm(t *testing.T) {
	w := regenttest.Start(t).Workspace(t, "managers")
	client, err := kubernetes.NewForConfig(w.Config)
	must(t, err)
	first, second := startManager(t, w, "first"), startManager(t, w, "second")
	configMaps := client.CoreV1().ConfigMaps("default")
	greets := func(whom string) {
		t.Helper()
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: whom, Labels: map[string]string{greeted: whom}}}
		_, err := configMaps.Create(t.Context(), obj, metav1.CreateOptions{})
		must(t, err)
		eventually(t, whom+" is greeted", func() bool {
			obj, err := configMaps.Get(t.Context(), whom, metav1.GetOptions{})
			return err == nil && obj.Data["greeting"] == "hello "+whom
		})
	}
	greets("early")

	var before float64
	for n := range 20 {
		eventually(t, "one leads", func() bool { return first.leads() != second.leads() })
		if n == 5 {
			before = max(first.metric("go_goroutines"), second.metric("go_goroutines"))
		}
		steal := fmt.Appendf(nil, `{"spec":{"holderIdentity":"","leaseTransitions":%d}}`, 100+n*10)
		_, err := client.CoordinationV1().Leases("default").Patch(t.Context(), lease, types.MergePatchType, steal, metav1.PatchOptions{})
		must(t, err)
		greets(fmt.Sprintf("after-%d", n))
	}
	eventually(t, "no goroutines of past terms", func() bool {
		return max(first.metric("go_goroutines"), second.metric("go_goroutines")) <= before+10
	})
	if !first.isAlive() || !second.isAlive() {
		t.Fatal("a lost lease has ended a process")
	}

	// A leader whose process nobody has heard yet is succeeded when its lease expires.
	leader, other := first, second
	eventually(t, "one leads, and the other one hears it", func() bool {
		if leader, other = first, second; second.leads() {
			leader, other = second, first
		}
		return leader.leads() && !other.leads() && other.metric(fmt.Sprintf(`regent_failure_detection_contact{name=%q,state="alive"}`, lease)) == 1
	})
	waited, killed := other.expiries(t), time.Now()
	must(t, leader.Process.Kill())
	eventually(t, "the other one leads", other.leads)
	t.Logf("a killed leader was succeeded after %v", time.Since(killed).Round(time.Millisecond))
	greets("late") // the log tells of the term before its work begins
	if other.expiries(t) > waited {
		t.Error("a killed leader was succeeded when its lease had expired")
	}
	must(t, other.Process.Signal(syscall.SIGTERM))
	<-other.ended
	if code := other.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so: much longer than it may take.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
