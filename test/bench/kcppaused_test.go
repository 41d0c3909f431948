package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/e2e/harness"
)

// kcpBurst is how many workspaces are created just before kcp's leader is paused, so that it is in the middle of its
// writes.
const kcpBurst = 20

// BenchmarkKcpPaused stops kcp's leader in the middle of its writes (SIGSTOP), waits until the other replica leads, and
// wakes it up (SIGCONT). It counts what the controllers of the one that slept write then, as its audit log has it. What
// a replica writes that does not lead does not count.
func BenchmarkKcpPaused(b *testing.B) {
	if *kcpStock == "" && *kcpRegent == "" {
		b.Fatal("no binary of kcp: examples/kcp/adopt.sh builds both, and this takes them as -kcp-stock and -kcp-regent")
	}
	began, table := time.Now(), "| who | paused for | stale writes | refused |\n|---|---|---|---|\n"
	for _, of := range []struct{ name, binary string }{{"kcp with Regent's packages", *kcpRegent}, {"kcp", *kcpStock}} {
		if of.binary == "" {
			continue
		}
		policy := filepath.Join(b.TempDir(), "policy.yaml")
		if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\nomitStages: [RequestReceived]\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		k := startKcp(b, of.binary, "--audit-policy-file="+policy, "--audit-log-path=ROOT/audit.log")
		line := k.pause(b, of.name)
		progress("%s", line)
		table += line
		for _, r := range k.replicas {
			r.Kill()
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s\n", table, closing(began))
}

func (k *kcp) pause(b *testing.B, name string) string {
	b.Helper()
	leader, standby := k.roles(b)
	settle(5 * time.Second)
	config, err := standby.config("root")
	if err != nil {
		b.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	workspaces := client.Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"})
	for range kcpBurst {
		k.made++
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": fmt.Sprintf("made-%d", k.made)}, "spec": map[string]any{}}}
		if _, err := workspaces.Create(b.Context(), object, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	held, stopped := k.lease(b), time.Now()
	leader.Signal(syscall.SIGSTOP)
	harness.EventuallyIn(b, 3*time.Minute, "the other replica leads", func() bool {
		now := k.lease(b).holder
		return now != "" && now != held.holder
	})
	takeover := time.Now()
	settle(2 * time.Second)
	everybody := map[string]bool{} // who writes in a replica that does not lead, too
	for _, e := range audited(b, filepath.Join(standby.root, "audit.log")) {
		if e.StageTimestamp.Time.Before(takeover.Add(-time.Second)) {
			everybody[e.UserAgent] = true
		}
	}
	woken := time.Now()
	leader.Signal(syscall.SIGCONT)
	settle(15 * time.Second) // the renew deadline of either is shorter
	stale, refused := 0, 0
	for _, e := range audited(b, filepath.Join(leader.root, "audit.log")) {
		if e.StageTimestamp.Time.Before(woken) || everybody[e.UserAgent] || e.ObjectRef.Resource == "leases" {
			continue
		}
		switch {
		case e.ResponseStatus.Code < 300:
			stale++
		case e.ResponseStatus.Code == 412:
			refused++
		}
	}
	return fmt.Sprintf("| %s | %s | %d | %d |\n", name, show(woken.Sub(stopped)), stale, refused)
}

// audit is what counts of an event of the audit log.
type audit struct {
	Verb, UserAgent string
	StageTimestamp  metav1.MicroTime
	ResponseStatus  struct{ Code int }
	ObjectRef       struct{ Resource, Subresource, Namespace, Name string }
}

// audited returns what was answered to who wanted to write.
func audited(b testing.TB, file string) (writes []audit) {
	b.Helper()
	log, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e audit
		if err := json.Unmarshal(line, &e); err != nil {
			b.Fatalf("%s: %v", line, err)
		}
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			writes = append(writes, e)
		}
	}
	if len(writes) == 0 {
		b.Fatal("the audit log has no writes")
	}
	return writes
}
