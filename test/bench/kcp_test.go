package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	kcpStock  = flag.String("kcp-stock", "", "a binary of kcp as it comes")
	kcpRegent = flag.String("kcp-regent", "", "a binary of kcp with examples/kcp/regent.patch")
	kcpTurns  = flag.Int("kcp-turns", 3, "how many leaders to kill, and how many to ask to stop, of each")
	kcpThefts = flag.Int("kcp-thefts", 20, "how often to steal the Lease of each")
)

// kcpLease is where kcp's Lease is in etcd.
const kcpLease = "/registry/coordination.k8s.io/leases/system:admin/kube-system/kcp-controllers"

// BenchmarkKcp is two replicas of kcp on one etcd, as it comes and with the patch, one after the other: how long nobody
// leads after the leader was killed or asked to stop, how long a workspace waits that was created then, and what a
// process has after its Lease was stolen again and again. examples/kcp/adopt.sh runs it.
func BenchmarkKcp(b *testing.B) {
	if *kcpStock == "" && *kcpRegent == "" {
		b.Fatal("no binary of kcp: examples/kcp/adopt.sh builds both, and calls this with -kcp-stock and -kcp-regent")
	}
	began := time.Now()
	leads := tableHead
	ready := strings.Replace(tableHead, "the leader gets", "a workspace is created when the leader gets", 1)
	thefts := ""
	for _, of := range []struct{ name, binary string }{{"kcp", *kcpStock}, {"kcp with Regent's packages", *kcpRegent}} {
		if of.binary == "" {
			continue
		}
		k := startKcp(b, of.binary)
		for _, e := range []struct {
			event  string
			signal syscall.Signal
		}{{"SIGTERM", syscall.SIGTERM}, {"kill -9", syscall.SIGKILL}} {
			lead, workspace := row{event: e.event, name: of.name}, row{event: e.event, name: of.name}
			for range *kcpTurns {
				l, w := k.turn(b, e.signal)
				lead.samples, workspace.samples = append(lead.samples, l), append(workspace.samples, w)
				progress("%s, %s: another leads after %s, a workspace is Ready after %s", of.name, e.event, show(l.took), show(w.took))
			}
			leads, ready = leads+lead.String(), ready+workspace.String()
		}
		before := k.footprint(b)
		for range *kcpThefts {
			k.steal(b)
		}
		thefts += fmt.Sprintf("| %s | %s | %s |\n", of.name, before, k.footprint(b))
		for _, r := range k.replicas {
			r.Kill()
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\nUntil another leads:\n\n%s\nUntil a workspace is Ready:\n\n%s\n| who | before | after %d stolen Leases |\n|---|---|---|\n%s\n%s\n", leads, ready, *kcpThefts, thefts, closing(began))
}

// kcp is two replicas of a shard of kcp.
type kcp struct {
	binary   string
	etcd     *clientv3.Client
	servers  string
	replicas [2]*kcpReplica
	made     int // workspaces
}

type kcpReplica struct {
	*harness.Process
	root  string
	port  int
	flags []string
}

func startKcp(b *testing.B, binary string, flags ...string) *kcp {
	b.Helper()
	etcd := harness.StartEtcd(b)
	k := &kcp{binary: binary, etcd: etcd.Client(b), servers: etcd.URL}
	for i, port := range harness.FreePorts(b, 2) {
		k.replicas[i] = &kcpReplica{root: filepath.Join(b.TempDir(), fmt.Sprintf("kcp-%d", i)), port: port}
		for _, flag := range flags {
			k.replicas[i].flags = append(k.replicas[i].flags, strings.ReplaceAll(flag, "ROOT", k.replicas[i].root))
		}
		if i > 0 { // replicas of a shard sign with one key
			key, err := os.ReadFile(filepath.Join(k.replicas[0].root, "sa.key"))
			if err == nil {
				err = os.MkdirAll(k.replicas[i].root, 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(k.replicas[i].root, "sa.key"), key, 0o600)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		k.start(b, k.replicas[i])
	}
	return k
}

// start returns when it is ready.
func (k *kcp) start(b *testing.B, r *kcpReplica) {
	b.Helper()
	args := append([]string{"start", "--root-directory=" + r.root, "--etcd-servers=" + k.servers, "--enable-leader-election",
		"--bind-address=127.0.0.1", "--external-hostname=127.0.0.1", fmt.Sprintf("--secure-port=%d", r.port)}, r.flags...)
	r.Process = harness.Start(b, filepath.Base(r.root), k.binary, args...)
	harness.EventuallyIn(b, 5*time.Minute, "kcp is ready", func() bool {
		if !r.Alive() {
			b.Fatalf("%s has ended", k.binary)
		}
		config, err := r.config("base")
		if err != nil {
			return false
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(b.Context())
		return err == nil && string(answer) == "ok"
	})
}

func (r *kcpReplica) config(context string) (*restclient.Config, error) {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(r.root, "admin.kubeconfig")},
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
}

// roles returns who leads, and who does not.
func (k *kcp) roles(b *testing.B) (leader, standby *kcpReplica) {
	b.Helper()
	leads := func(r *kcpReplica) int { // the last of what it logs about leading
		log := r.Log()
		began := max(strings.LastIndex(log, `"started leading"`), strings.LastIndex(log, `"Leading"`))
		if ended := max(strings.LastIndex(log, `"stopped leading"`), strings.LastIndex(log, `"The term has ended"`)); ended > began {
			return -1
		}
		return began
	}
	harness.EventuallyIn(b, 3*time.Minute, "one of kcp's replicas leads", func() bool {
		a, z := leads(k.replicas[0]) >= 0 && k.replicas[0].Alive(), leads(k.replicas[1]) >= 0 && k.replicas[1].Alive()
		leader, standby = k.replicas[0], k.replicas[1]
		if z {
			leader, standby = standby, leader
		}
		return a != z
	})
	return leader, standby
}

// turn ends the leader, and starts it again when all is measured.
func (k *kcp) turn(b *testing.B, s syscall.Signal) (leads, ready sample) {
	b.Helper()
	leader, standby := k.roles(b)
	settle(5 * time.Second)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	held := k.lease(b)
	events := k.etcd.Watch(ctx, kcpLease, clientv3.WithRev(held.revision+1))
	load, began := loadAverage(b), time.Now()
	leader.Signal(s)
	created := make(chan time.Time, 1)
	go func() { created <- k.workspace(b, standby) }()
	for took := time.Duration(0); took == 0; {
		select {
		case resp := <-events:
			for _, e := range resp.Events {
				if now := decodeLease(b, e.Kv.Value); e.Type == clientv3.EventTypePut && now != "" && now != held.holder {
					took = time.Since(began)
				}
			}
			if took > 0 {
				leads = sample{began: began, took: took, load: load}
			}
		case <-time.After(3 * time.Minute):
			b.Fatal("nobody leads after three minutes")
		}
	}
	ready = sample{began: began, took: (<-created).Sub(began), load: load}
	leader.Wait()
	k.start(b, leader)
	return leads, ready
}

// workspace creates one, and returns when it was Ready.
func (k *kcp) workspace(b *testing.B, through *kcpReplica) time.Time {
	config, err := through.config("root")
	if err != nil {
		b.Error(err)
		return time.Time{}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		b.Error(err)
		return time.Time{}
	}
	k.made++
	name := fmt.Sprintf("made-%d", k.made)
	workspaces := client.Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"})
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}, "spec": map[string]any{}}}
	if _, err := workspaces.Create(b.Context(), object, metav1.CreateOptions{}); err != nil {
		b.Error(err)
		return time.Time{}
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got, err := workspaces.Get(b.Context(), name, metav1.GetOptions{})
		if err == nil {
			if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase == "Ready" {
				return time.Now()
			}
		}
	}
	b.Errorf("workspace %s is not Ready after five minutes", name)
	return time.Now()
}

type heldLease struct {
	holder   string
	revision int64
}

func (k *kcp) lease(b *testing.B) heldLease {
	b.Helper()
	resp, err := k.etcd.Get(b.Context(), kcpLease)
	if err != nil || len(resp.Kvs) == 0 {
		b.Fatalf("kcp's Lease is not in etcd at %s: %v", kcpLease, err)
	}
	return heldLease{decodeLease(b, resp.Kvs[0].Value), resp.Header.Revision}
}

func decodeLease(b testing.TB, value []byte) string {
	b.Helper()
	if len(value) == 0 {
		return ""
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	return ptr.Deref(object.(*coordinationv1.Lease).Spec.HolderIdentity, "")
}

// theft is how many seconds the thief holds the Lease: longer than kcp's renew deadline of 5 s. Within that client-go's
// elector takes the Lease back without ending its term, so that a shorter theft is none.
const theft = 8

// steal writes another holder into the Lease, who holds it for a while, and returns when one of the replicas leads
// again. It writes past the servers, since kcp lets nobody else write there.
func (k *kcp) steal(b *testing.B) {
	b.Helper()
	codec := scheme.Codecs.LegacyCodec(coordinationv1.SchemeGroupVersion)
	harness.Eventually(b, "the Lease is stolen", func() bool {
		resp, err := k.etcd.Get(b.Context(), kcpLease)
		if err != nil || len(resp.Kvs) == 0 {
			b.Fatalf("kcp's Lease is not in etcd at %s: %v", kcpLease, err)
		}
		object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), resp.Kvs[0].Value)
		if err != nil {
			b.Fatal(err)
		}
		lease := object.(*coordinationv1.Lease)
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			return false // it is between two holders
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To("thief"), ptr.To[int32](theft), &metav1.MicroTime{Time: time.Now()}
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		value, err := runtime.Encode(codec, lease)
		if err != nil {
			b.Fatal(err)
		}
		written, err := k.etcd.Txn(b.Context()).If(clientv3.Compare(clientv3.ModRevision(kcpLease), "=", resp.Kvs[0].ModRevision)).Then(clientv3.OpPut(kcpLease, string(value))).Commit()
		return err == nil && written.Succeeded
	})
	harness.EventuallyIn(b, 3*time.Minute, "a replica leads again", func() bool {
		holder := k.lease(b).holder
		return holder != "" && holder != "thief"
	})
	settle(2 * time.Second)
	k.roles(b)
}

// footprint is what the process of the leader has.
func (k *kcp) footprint(b *testing.B) string {
	b.Helper()
	var out []string
	for _, r := range k.replicas {
		config, err := r.config("base")
		if err != nil {
			b.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			b.Fatal(err)
		}
		metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		var goroutines, heap float64
		for line := range bytes.Lines(metrics) {
			_, _ = fmt.Sscanf(string(line), "go_goroutines %g", &goroutines)
			_, _ = fmt.Sscanf(string(line), "go_memstats_heap_inuse_bytes %g", &heap)
		}
		out = append(out, fmt.Sprintf("%.0f goroutines, %.0f MiB heap", goroutines, heap/(1<<20)))
	}
	return strings.Join(out, "; ")
}
