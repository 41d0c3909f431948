package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/test/e2e/harness"
)

const managerLease = "manager.example.com"

// manager is a process of examples/manager.
type manager struct {
	*harness.Process
	t       *testing.T
	metrics string
}

// startManager starts one that works in a workspace.
func startManager(t *testing.T, name string, r *harness.Replica, path, cluster string) *manager {
	t.Helper()
	binary := harness.Program(t, "manager")
	config := r.Config(path)
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", harness.FreePorts(t, 1)[0])
	p := harness.Start(t, name, "env", "POD_IP=127.0.0.1", binary, "--kubeconfig="+file, "--cluster="+cluster, "--metrics-bind-address="+address)
	return &manager{p, t, "http://" + address + "/metrics"}
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
	return m.metric(fmt.Sprintf("leader_election_master_status{name=%q}", managerLease)) == 1
}

// A manager of controller-runtime with package perterm: leases that are taken away end terms and no process, nothing of
// a term is left, and a killed leader is succeeded at once.
func TestAManagerLeadsTermAfterTerm(t *testing.T) {
	t.Parallel()
	r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	r.WaitRoot()
	r.CreateWorkspace("managers")
	cluster := r.WaitWorkspace("managers")
	const path = "root:managers"
	first, second := startManager(t, "first", r, path, cluster), startManager(t, "second", r, path, cluster)
	configmaps := r.Kube(path).CoreV1().ConfigMaps("default")
	greets := func(whom string) {
		t.Helper()
		if _, err := configmaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: whom, Labels: map[string]string{"example.com/greeted": whom}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, whom+" is greeted", func() bool {
			obj, err := configmaps.Get(t.Context(), whom, metav1.GetOptions{})
			return err == nil && obj.Data["greeting"] == "hello "+whom
		})
	}
	greets("early")

	var before float64
	for n := range 20 {
		harness.Eventually(t, "one leads", func() bool { return first.leads() != second.leads() })
		if n == 5 {
			before = max(first.metric("go_goroutines"), second.metric("go_goroutines"))
		}
		if _, err := r.Kube(path).CoordinationV1().Leases("default").Patch(t.Context(), managerLease, types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"","leaseTransitions":`+strconv.Itoa(100+n*10)+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		greets(fmt.Sprintf("after-%d", n))
	}
	harness.Eventually(t, "no goroutines of past terms", func() bool {
		return max(first.metric("go_goroutines"), second.metric("go_goroutines")) <= before+10
	})
	if !first.Alive() || !second.Alive() {
		t.Fatal("a lost lease has ended a process")
	}

	// A leader whose process nobody has heard yet is succeeded when its lease expires.
	leader, other := first, second
	harness.Eventually(t, "one leads, and the other one hears it", func() bool {
		if second.leads() {
			leader, other = second, first
		} else {
			leader, other = first, second
		}
		return leader.leads() && !other.leads() && other.metric(fmt.Sprintf(`regent_failure_detection_contact{name=%q,state="alive"}`, managerLease)) == 1
	})
	expiries := func() int { return len(other.Lines(`"Leading"`, "expired")) }
	waited := expiries()
	killed := time.Now()
	leader.Kill()
	harness.Eventually(t, "the other one leads", other.leads)
	t.Logf("a killed leader was succeeded after %v", time.Since(killed).Round(time.Millisecond))
	greets("late") // the log tells of the term before its work begins
	if expiries() > waited {
		t.Error("a killed leader was succeeded when its lease had expired")
	}
	other.Signal(syscall.SIGTERM)
	if code := other.Wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
