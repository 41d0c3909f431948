package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/test/e2e/harness"
)

// regent runs a command, and returns what it says.
func regent(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), harness.Binary("regent"), args...).CombinedOutput()
	return string(out), err
}

func mustRegent(t *testing.T, args ...string) string {
	t.Helper()
	out, err := regent(t, args...)
	if err != nil {
		t.Fatalf("regent %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// copyPKI copies pki/ from one replica to another, file by file, as an operator does.
func copyPKI(t *testing.T, from, to *harness.Replica) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(from.Root, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "lock" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from.Root, "pki", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to.Root, "pki", f.Name()), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(filepath.Join(from.Root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.ReplaceAll(string(config), from.URL, to.URL))
	if err := os.WriteFile(filepath.Join(to.Root, "admin.kubeconfig"), config, 0o600); err != nil {
		t.Fatal(err)
	}
}

// authorityOf returns the SHA-256 of the n-th certificate in a replica's ca.crt.
func authorityOf(t *testing.T, r *harness.Replica, n int) string {
	t.Helper()
	certs, err := cert.CertsFromFile(filepath.Join(r.Root, "pki", "ca.crt"))
	if err != nil || len(certs) <= n {
		t.Fatalf("%d certificates, %v", len(certs), err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(certs[n].Raw))
}

// keysOf returns a client's configuration with the credentials of this moment, and connections of its own.
func keysOf(r *harness.Replica) *rest.Config {
	r.ReadKeysAgain()
	return r.AdminConfig("root")
}

// asAdmin runs kubectl in root with the administrator's credentials of this moment. It must succeed.
func asAdmin(t *testing.T, r *harness.Replica, args ...string) string {
	t.Helper()
	out, err := r.AdminKubectl("root", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func reads(t *testing.T, config *rest.Config) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	return err
}

// uses waits until both replicas sign with an authority, and trust so many.
func uses(t *testing.T, authority string, trusted int, replicas ...*harness.Replica) {
	t.Helper()
	for _, r := range replicas {
		r.ReadKeysAgain()
		harness.Eventually(t, r.Name()+" uses the keys", func() bool {
			return r.MetricSum("regent_certificate_authority", authority, `"signs"`) == 1 && r.MetricSum("regent_certificate_authority") == float64(trusted)
		})
	}
}

// The authority of a shard is exchanged in steps, first on one replica and then on the other. Users who were there
// before, and users who come with what each step has given them, write and read through both. Nothing fails, no watch
// ends, and the term goes on. In the end what the old authority has signed is worth nothing, and nobody can go back by
// mistake.
func TestTheAuthorityIsRolledWithClientsConnected(t *testing.T) {
	t.Parallel() // most of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default
	shard.OneMachine = false
	a := shard.Start(t, "a")
	b := shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	epoch := *leader.Lease().Spec.LeaseTransitions
	leader.WaitRoot()
	backup := t.TempDir()
	if err := os.CopyFS(filepath.Join(backup, "pki"), os.DirFS(filepath.Join(a.Root, "pki"))); err != nil {
		t.Fatal(err)
	}
	old := keysOf(b)
	oldAuthority := authorityOf(t, a, 0)
	watches := []*kubectlWatch{startKubectl(t, kubectl{a, "root"}, "default", "get", "namespaces", "-w"), startKubectl(t, kubectl{b, "root"}, "default", "get", "namespaces", "-w")}
	roll := func(step string) { mustRegent(t, "pki", "roll", step, "--root-directory="+a.Root) }

	all := []*users{startUsers(t, a, b)}
	roll("begin")
	uses(t, oldAuthority, 2, a)
	copyPKI(t, a, b)
	uses(t, oldAuthority, 2, b)
	newAuthority := authorityOf(t, a, 1)
	all = append(all, startUsers(t, a, b))

	roll("switch")
	uses(t, newAuthority, 2, a)
	if out, err := regent(t, "pki", "roll", "finish", "--root-directory="+a.Root, "--server="+a.URL, "--server="+b.URL); err == nil || !strings.Contains(out, "copy pki/") {
		t.Errorf("one replica signs with the old authority, and the roll is finished: %s", out)
	}
	copyPKI(t, a, b)
	uses(t, newAuthority, 2, b)
	all = append(all, startUsers(t, a, b))
	for _, u := range all[:2] {
		u.finish() // what the old authority has signed for them ends with the next step
	}

	mustRegent(t, "pki", "roll", "finish", "--root-directory="+a.Root, "--server="+a.URL, "--server="+b.URL)
	uses(t, newAuthority, 1, a)
	copyPKI(t, a, b)
	uses(t, newAuthority, 1, b)
	all = append(all, startUsers(t, a, b))
	asAdmin(t, b, "create", "namespace", "after-the-roll")
	for _, w := range watches {
		harness.Eventually(t, "the watches go on", func() bool { return strings.Contains(w.output.String(), "after-the-roll") })
	}
	harness.Eventually(t, "those who came last were served", func() bool { return len(all[3].between(time.Time{}, time.Now())) > 20 })
	for _, u := range all {
		u.finish()
		u.tell(t)
		if n := failures(u.requests); n > 0 || len(u.requests) < 20 {
			t.Errorf("%d of %d requests failed", n, len(u.requests))
		}
	}
	if now := *leader.Lease().Spec.LeaseTransitions; now != epoch {
		t.Errorf("the shard is led in epoch %d, and was in %d", now, epoch)
	}

	if err := reads(t, old); err == nil {
		t.Error("a client that trusts the old authority only trusts the shard")
	}
	old.CAData = keysOf(b).CAData
	if err := reads(t, old); err == nil || !strings.Contains(err.Error(), "Unauthorized") && !strings.Contains(err.Error(), "provide credentials") {
		t.Errorf("what the old authority has signed: %v", err)
	}
	b.Signal(15)
	b.Wait()
	b.Again()
	b.ReadKeysAgain()
	b.WaitReady()
	mustNotGoBack(t, a, backup)
}

// mustNotGoBack puts the keys from before the roll into a replica's directory.
func mustNotGoBack(t *testing.T, r *harness.Replica, backup string) {
	t.Helper()
	if err := os.Remove(filepath.Join(r.Root, "pki", "roll.json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "admin.crt", "admin.key"} {
		content, err := os.ReadFile(filepath.Join(backup, "pki", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Root, "pki", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "the log says that the files are another authority's", func() bool {
		return len(r.Lines("The certificates stay as they are", "another certificate authority")) > 0
	})
	r.Signal(15)
	r.Wait()
	r.Again()
	if code := r.Wait(); code != 1 || !strings.Contains(r.Log(), "replace ") {
		t.Errorf("a replica with the keys from before the roll ends with %d", code)
	}
}

// The administrator's certificate is renewed beside a replica that runs: the new one is good at once, and the old one
// goes on.
func TestTheAdministratorsCertificateIsRenewed(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	r.WaitRoot()
	before := keysOf(r)
	var planned, done []struct{ File, Action string }
	if err := json.Unmarshal([]byte(mustRegent(t, "pki", "renew", "--root-directory="+r.Root, "-o=json", "--dry-run")), &planned); err != nil {
		t.Fatal(err)
	}
	if now := keysOf(r); string(now.CertData) != string(before.CertData) {
		t.Error("a dry run has changed the certificate")
	}
	if said := mustRegent(t, "pki", "renew", "--root-directory="+r.Root, "--dry-run"); !strings.Contains(said, "renewed (dry run)\n") {
		t.Errorf("a dry run says as if it had done it:\n%s", said)
	}
	if err := json.Unmarshal([]byte(mustRegent(t, "pki", "renew", "--root-directory="+r.Root, "-o=json")), &done); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(planned) != fmt.Sprint(done) || len(done) != 2 || done[1].Action != "renewed" {
		t.Errorf("planned %v, done %v", planned, done)
	}
	after := keysOf(r)
	if string(after.CertData) == string(before.CertData) || string(after.KeyData) == string(before.KeyData) {
		t.Error("the certificate or its key is the old one")
	}
	for name, config := range map[string]*rest.Config{"old": before, "new": after} {
		if err := reads(t, config); err != nil {
			t.Errorf("the %s certificate: %v", name, err)
		}
	}
	if out := asAdmin(t, r, "get", "namespaces"); !strings.Contains(out, "default") {
		t.Errorf("kubectl says %s", out)
	}
	if status := r.Status("/readyz/certificates"); status != http.StatusOK {
		t.Errorf("/readyz/certificates: %d", status)
	}
}
