package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	kcmPrograms = flag.String("kcm", "", "the directory with the kube-controller-manager and the kube-apiserver that examples/kube-controller-manager/adopt.sh has built")
	kcmThefts   = flag.Int("kcm-thefts", 100, "how often to steal kube-controller-manager's Lease")
	kcmKills    = flag.Int("kcm-kills", 20, "how many of kube-controller-manager's leaders to kill")
	kcmPauses   = flag.Int("kcm-pauses", 3, "how many of kube-controller-manager's leaders to pause")
)

const (
	kcmLease    = "kube-controller-manager"
	kcmLeaseKey = "/registry/leases/kube-system/" + kcmLease
)

// controllerManagers are two processes of kube-controller-manager. Each has a kube-apiserver of its own, whose audit
// log has what that process wrote, and what was refused. The two servers have one etcd.
type controllerManagers struct {
	accounts accounts
	etcd     *clientv3.Client
	admin    kubernetes.Interface // of the second server
	each     [2]*controllerManager
}

type controllerManager struct {
	*harness.Process
	server *restclient.Config
	audit  string
	url    string // of what it serves itself
	flags  []string
}

// startControllerManagers starts n of them, one or two, and returns when one leads.
func startControllerManagers(t testing.TB, n int) *controllerManagers {
	t.Helper()
	if *kcmPrograms == "" {
		t.Fatal("no kube-controller-manager: make long-kcm builds it, and calls this with -kcm")
	}
	t.Setenv("POD_IP", "127.0.0.1") // where the processes look at each other
	etcd := harness.StartEtcd(t)
	m := &controllerManagers{accounts: newAccounts(t), etcd: etcd.Client(t)}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\nomitStages: [RequestReceived]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c := &controllerManager{audit: filepath.Join(t.TempDir(), "audit.log")}
		_, c.server = m.accounts.serve(t, fmt.Sprintf("kube-apiserver-%d", i), filepath.Join(*kcmPrograms, "kube-apiserver"), etcd.URL,
			"--audit-policy-file="+policy, "--audit-log-path="+c.audit, "--audit-log-mode=blocking")
		port := harness.FreePorts(t, 1)[0]
		as := kubeconfig(t, c.server.Host, m.accounts.controllers) // Kubernetes' own role of it is enough
		c.url = fmt.Sprintf("https://127.0.0.1:%d", port)
		c.flags = []string{
			"--kubeconfig=" + as, "--authentication-kubeconfig=" + as, "--authorization-kubeconfig=" + as, "--authorization-always-allow-paths=/*",
			"--service-account-private-key-file=" + m.accounts.key, "--use-service-account-credentials", "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + t.TempDir(), "--v=2",
		}
		m.each[i] = c
	}
	client, err := kubernetes.NewForConfig(m.each[n-1].server)
	if err != nil {
		t.Fatal(err)
	}
	m.admin = client
	for i := range n {
		m.start(t, i)
	}
	return m
}

// start returns when the process stands by or leads.
func (m *controllerManagers) start(t testing.TB, i int) {
	t.Helper()
	c := m.each[i]
	c.Process = harness.Start(t, fmt.Sprintf("kube-controller-manager-%d", i), filepath.Join(*kcmPrograms, "kube-controller-manager"), c.flags...)
	harness.Eventually(t, "kube-controller-manager stands by or leads", func() bool {
		if !c.Alive() {
			t.Fatal("kube-controller-manager has ended")
		}
		return len(c.Lines(`"Other replicas reach this process's probe"`)) > 0 // its caches are full
	})
}

// leads reports whether the last that the process has logged about leading is that it leads.
func (c *controllerManager) leads() bool {
	log := c.Log()
	return c.Alive() && strings.LastIndex(log, `"Leading"`) > strings.LastIndex(log, `"The term has ended"`)
}

// roles returns who leads, and who does not.
func (m *controllerManagers) roles(t testing.TB) (leader, standby int) {
	t.Helper()
	harness.EventuallyIn(t, 2*time.Minute, "one of the two leads", func() bool {
		leader = 0
		if m.each[1].leads() {
			leader = 1
		}
		return m.each[leader].leads() && !m.each[1-leader].leads()
	})
	return leader, 1 - leader
}

// steal writes another holder into the Lease, for a second.
func (m *controllerManagers) steal(t testing.TB, thief string) {
	t.Helper()
	leases := m.admin.CoordinationV1().Leases(metav1.NamespaceSystem)
	for {
		lease, err := leases.Get(t.Context(), kcmLease, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &thief, ptr.To[int32](1)
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		if _, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err == nil {
			return
		}
		if !apierrors.IsConflict(err) { // a renewal came between
			t.Fatal(err)
		}
	}
}

// A kube-controller-manager that is deposed a hundred times is the same process, works as in its first term, and is as
// large as after the tenth.
func TestAKubeControllerManagerOutlivesStolenLeases(t *testing.T) {
	m := startControllerManagers(t, 1)
	c, pid := m.each[0], m.each[0].PID()
	m.deploy(t, "example", 2)
	var tenth, last kcmFootprint
	var took []time.Duration
	for n := 1; n <= *kcmThefts; n++ {
		harness.Eventually(t, "it leads", c.leads)
		terms, began := len(c.Lines(`"Leading"`)), time.Now()
		m.steal(t, fmt.Sprintf("thief-%d", n))
		harness.Eventually(t, "the term ends", func() bool { return len(c.Lines(`"The term has ended"`)) >= terms })
		m.patch(t, "example", fmt.Sprint(n))
		m.awaitRevision(t, "example", fmt.Sprint(n)) // controllers of the next term have done it
		took = append(took, time.Since(began))
		if len(c.Lines(`"Leading"`)) != terms+1 {
			t.Errorf("theft %d: %d terms, want %d", n, len(c.Lines(`"Leading"`)), terms+1)
		}
		if n == min(10, *kcmThefts) {
			tenth = c.footprint(t)
			progress("after %d stolen leases: %s", n, tenth)
		}
		if n%10 == 0 {
			progress("%d stolen leases", n)
		}
	}
	last = c.footprint(t)
	fmt.Printf("\nfrom the theft until the next term's controllers have done something: median %s, max %s\n", show(median(took)), show(slices.Max(took)))
	fmt.Printf("after %d stolen leases: %s\nafter %d stolen leases: %s\n", min(10, *kcmThefts), tenth, *kcmThefts, last)
	if !c.Alive() || c.PID() != pid {
		t.Error("the process has ended")
	}
	if last.goroutines > tenth.goroutines {
		t.Errorf("%d goroutines, %d after the tenth theft:\n%s", last.goroutines, tenth.goroutines, more(tenth.kinds, last.kinds))
	}
	if last.heap > tenth.heap+2 { // what a term has, were it kept, would be some 15 MiB each time
		t.Errorf("%.1f MiB of heap, %.1f after the tenth theft", last.heap, tenth.heap)
	}
	if late := c.Lines("Goroutines are late"); len(late) > 0 {
		t.Errorf("goroutines were late: %s", late[0])
	}
}

// deploy creates a Deployment of which one old revision is kept, and waits until its pods are there: nobody runs them.
func (m *controllerManagers) deploy(t testing.TB, name string, replicas int32) {
	t.Helper()
	if _, err := m.admin.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), deployment(name, replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.awaitRevision(t, name, "")
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, RevisionHistoryLimit: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}}},
		},
	}
}

// patch gives the Deployment's pods another annotation.
func (m *controllerManagers) patch(t testing.TB, name, revision string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"revision":%q}}}}}`, revision)
	if _, err := m.admin.AppsV1().Deployments(metav1.NamespaceDefault).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (m *controllerManagers) awaitRevision(t testing.TB, name, revision string) {
	t.Helper()
	harness.Eventually(t, "the Deployment's pods are of revision "+revision, func() bool {
		d, err := m.admin.AppsV1().Deployments(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := m.admin.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		return d.Status.ObservedGeneration == d.Generation && len(pods.Items) == int(*d.Spec.Replicas) &&
			!slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Annotations["revision"] != revision || p.DeletionTimestamp != nil })
	})
}

// kcmFootprint is what a process has. Connections, and the requests of this test, come and go whether it leads or not.
type kcmFootprint struct {
	goroutines  int            // but of connections
	connections int            // goroutines of these
	heap        float64        // MiB, after a garbage collection
	resident    int            // MiB
	kinds       map[string]int // of goroutines but of connections, by what began them
}

func (f kcmFootprint) String() string {
	return fmt.Sprintf("%d goroutines and %d of connections, %.1f MiB of heap, %d MiB resident", f.goroutines, f.connections, f.heap, f.resident)
}

// ofConnections says of which goroutines it is, by what began them.
var ofConnections = regexp.MustCompile(`^created by (net/http\.\(\*(Server|Transport)\)|golang\.org/x/net/http2\.\(\*(serverConn|Server|Transport|ClientConn)\))\.`)

// footprint takes the smallest of several looks, since watches end and begin.
func (c *controllerManager) footprint(t testing.TB) kcmFootprint {
	t.Helper()
	var least kcmFootprint
	for n := range 10 {
		settle(time.Second)
		now := kcmFootprint{kinds: map[string]int{}}
		for stack := range strings.SplitSeq(c.get(t, "/debug/pprof/goroutine?debug=2"), "\n\n") {
			began, _, _ := strings.Cut(stack[strings.LastIndex(stack, "\ncreated by ")+1:], " in goroutine ")
			if ofConnections.MatchString(began) {
				now.connections++
				continue
			}
			now.goroutines++
			now.kinds[began]++
		}
		for line := range strings.Lines(c.get(t, "/debug/pprof/heap?gc=1&debug=1")) {
			_, _ = fmt.Sscanf(line, "# HeapAlloc = %g", &now.heap)
		}
		now.heap, now.resident = now.heap/(1<<20), c.ResidentMiB()
		if n == 0 || now.goroutines < least.goroutines {
			least.goroutines, least.connections, least.kinds = now.goroutines, now.connections, now.kinds
		}
		if n == 0 || now.heap < least.heap {
			least.heap, least.resident = now.heap, now.resident
		}
	}
	return least
}

func (c *controllerManager) get(t testing.TB, path string) string {
	t.Helper()
	transport, err := restclient.HTTPClientFor(c.server)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %.200s", path, resp.Status, err, body)
	}
	return string(body)
}

// more says of which kind there are more goroutines than before.
func more(before, after map[string]int) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		if n := after[kind] - before[kind]; n > 0 {
			out = append(out, fmt.Sprintf("%d more: %s", n, kind))
		}
	}
	return strings.Join(out, "\n")
}

// kcmBurst is how many Deployments change just before a leader is paused, so that it is in the middle of its writes.
const kcmBurst = 10

// burst changes all Deployments of that name, or creates them, and does not wait.
func (m *controllerManagers) burst(t testing.TB, revision string) {
	t.Helper()
	for i := range kcmBurst {
		name := fmt.Sprintf("burst-%d", i)
		if revision == "0" {
			d := deployment(name, 5)
			d.Spec.Template.Annotations = map[string]string{"revision": revision}
			if _, err := m.admin.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		m.patch(t, name, revision)
	}
}

func (m *controllerManagers) awaitBurst(t testing.TB, revision string) {
	t.Helper()
	for i := range kcmBurst {
		m.awaitRevision(t, fmt.Sprintf("burst-%d", i), revision)
	}
}

// After kill -9 the other process has the Lease, and its controllers go on where the one that was killed was: in the
// middle of creating pods, some 20 a second, as kube-controller-manager's limit for requests allows.
func TestAKubeControllerManagerSucceedsAKilledOne(t *testing.T) {
	const pods, enough = 200, 60
	m := startControllerManagers(t, 2)
	m.deploy(t, "crowd", 0)
	lease, first := row{event: "kill -9", name: "the Lease is held"}, row{event: "kill -9", name: "the first write of its controllers"}
	for n := 1; n <= *kcmKills; n++ {
		leader, _ := m.roles(t)
		settle(3 * time.Second)
		m.scale(t, "crowd", pods, func(now int) bool { return now >= enough })
		load := loadAverage(t)
		h, w, key := m.kill(t, m.each[leader])
		lease.samples, first.samples = append(lease.samples, sample{took: h, load: load}), append(first.samples, sample{took: w, load: load})
		progress("kill %d: the Lease is held after %s, the first write after %s (%s), load average %.2f", n, show(h), show(w), key, load)
		m.scale(t, "crowd", 0, func(now int) bool { return now == 0 })
		m.start(t, leader)
	}
	fmt.Printf("\n%s%s%s\n", tableHead, lease, first)
}

// scale returns when there are as many pods as enough wants.
func (m *controllerManagers) scale(t testing.TB, name string, replicas int, enough func(now int) bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if _, err := m.admin.AppsV1().Deployments(metav1.NamespaceDefault).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, fmt.Sprintf("%s goes to %d pods", name, replicas), func() bool {
		resp, err := m.etcd.Get(t.Context(), "/registry/pods/default/"+name+"-", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return enough(int(resp.Count))
	})
}

// kill ends the leader, and returns after how long another held the Lease, and after how long the first write of its
// controllers was in etcd, and where. From the revision at which another has the Lease, the fence lets only that one's
// through.
func (m *controllerManagers) kill(t testing.TB, leader *controllerManager) (lease, write time.Duration, where string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holder, revision := m.holder(t)
	events := m.etcd.Watch(clientv3.WithRequireLeader(ctx), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithCreatedNotify())
	if first := <-events; first.Err() != nil {
		t.Fatal(first.Err())
	}
	began := time.Now()
	leader.Signal(syscall.SIGKILL)
	for timeout := time.After(harness.Patience); where == ""; {
		select {
		case resp := <-events:
			if err := resp.Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range resp.Events {
				key := string(e.Kv.Key)
				switch {
				case key == kcmLeaseKey:
					if now := decodeLease(t, e.Kv.Value); lease == 0 && now != "" && now != holder {
						lease = time.Since(began)
					}
				case lease != 0 && where == "" && (strings.HasPrefix(key, "/registry/replicasets/") || strings.HasPrefix(key, "/registry/pods/") || strings.HasPrefix(key, "/registry/deployments/")):
					write, where = time.Since(began), key
				}
			}
		case <-timeout:
			t.Fatal("no controller of another process has written")
		}
	}
	leader.Wait()
	return lease, write, where
}

func (m *controllerManagers) holder(t testing.TB) (holder string, revision int64) {
	t.Helper()
	resp, err := m.etcd.Get(t.Context(), kcmLeaseKey)
	if err != nil || len(resp.Kvs) == 0 {
		t.Fatalf("the Lease is not in etcd at %s: %v", kcmLeaseKey, err)
	}
	return decodeLease(t, resp.Kvs[0].Value), resp.Header.Revision
}

// A leader that is paused in the middle of its writes, and wakes up when another leads, writes nothing any more: its
// own kube-apiserver's audit log says so.
func TestAKubeControllerManagerThatWasPausedWritesNothing(t *testing.T) {
	m := startControllerManagers(t, 2)
	m.burst(t, "0")
	m.awaitBurst(t, "0")
	refused := 0
	for n := 1; n <= *kcmPauses; n++ {
		leader, _ := m.roles(t)
		settle(3 * time.Second)
		holder, _ := m.holder(t)
		m.burst(t, fmt.Sprint(n))
		stopped := time.Now()
		m.each[leader].Signal(syscall.SIGSTOP)
		harness.EventuallyIn(t, 2*time.Minute, "the other leads", func() bool {
			now, _ := m.holder(t)
			return now != "" && now != holder
		})
		took := time.Now() // requests that had arrived before are over soon after
		settle(2 * time.Second)
		if !m.each[1-leader].leads() {
			t.Fatal("the other does not lead")
		}
		woken := time.Now()
		m.each[leader].Signal(syscall.SIGCONT)
		harness.Eventually(t, "its term ends", func() bool { return !m.each[leader].leads() })
		settle(15 * time.Second)
		late, fenced := 0, 0
		for _, e := range audited(t, m.each[leader].audit) {
			if !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") || e.ObjectRef.Resource == "leases" || e.StageTimestamp.Time.Before(took) {
				continue
			}
			switch {
			case e.ResponseStatus.Code == http.StatusPreconditionFailed:
				fenced++
			case e.ResponseStatus.Code < 300 && e.ObjectRef.Subresource != "token" && e.ObjectRef.Resource != "tokenreviews" && e.ObjectRef.Resource != "subjectaccessreviews":
				late++
				t.Errorf("pause %d: a late write: %+v", n, e)
			}
		}
		refused += fenced
		progress("pause %d: for %s, the other led after %s; late writes: %d, refused: %d", n, show(woken.Sub(stopped)), show(took.Sub(stopped)), late, fenced)
		m.awaitBurst(t, fmt.Sprint(n)) // the other has done what was left
	}
	if refused == 0 {
		t.Error("no write was refused: the pauses were not in the middle of writes, so that nothing is shown")
	}
}
