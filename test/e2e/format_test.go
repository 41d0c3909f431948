package e2e

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I15: replicas that do not read what the shard has stored end, or do not begin, with exit code 2, and say which
// versions do. What they had stored is there for a version that reads it.
func TestReplicasEndIfTheShardIsInAFormatThatTheyDoNotReadI15(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	create(t, replicas, "root", "before")
	awaitReady(t, replicas, "root", "before")

	client, key := etcd.Client(t), "/registry/.shard"
	resp, err := client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("the shard's record: %v (%v)", resp, err)
	}
	readable := string(resp.Kvs[0].Value)
	newer := regexp.MustCompile(`"format":[0-9]+,"readable-from":"[^"]+"`).ReplaceAllString(readable, `"format":99,"readable-from":"v9.0.0"`)
	if newer == readable {
		t.Fatalf("the record names no format: %s", readable)
	}
	put := func(record string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, record); err != nil {
			t.Fatal(err)
		}
	}
	put(newer)
	late := shard.Launch(t, "late")
	for _, r := range append(replicas, late) {
		if code := r.Wait(); code != 2 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
		if !strings.Contains(r.Log(), "it is in format 99, which versions from v9.0.0 on read") {
			t.Errorf("%s does not say which versions read the shard:\n%s", r.Name(), r.Log())
		}
	}
	if strings.Contains(late.Log(), "Leading") {
		t.Errorf("one that came later has led:\n%s", late.Log())
	}

	put(readable)
	for _, r := range replicas {
		r.Again()
	}
	awaitReady(t, replicas, "root", "before")
	if status, body := replicas[0].Get("/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %d %s", status, body)
	}
}

// I15: an operator has a shard go on to a newer format when all its replicas read it, and not before. From then on
// replicas that do not read it end.
func TestAShardGoesOnToAFormatWhenAllItsReplicasReadItI15(t *testing.T) {
	t.Parallel()
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	old := shard.Start(t, "old")
	create(t, []*harness.Replica{old}, "root", "before")
	shard.Binary = harness.Program(t, "faulty")
	fresh := []*harness.Replica{shard.Start(t, "fresh", "--formats=3"), shard.Start(t, "other", "--formats=3")}
	regent := func(args ...string) (said string, code int) {
		t.Helper()
		cmd := harness.Command(t, "regent", append(args, "--kubeconfig="+filepath.Join(fresh[0].Root, "admin.kubeconfig"), "--server="+fresh[0].URL)...)
		out, _ := cmd.CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " "), cmd.ProcessState.ExitCode()
	}
	if said, code := regent("upgrade", "finalize"); code != 1 || !strings.Contains(said, "reads no format after 2") {
		t.Errorf("with a replica that does not read it: %d, %s", code, said)
	}
	if said, code := regent("upgrade", "status"); code != 0 || !strings.Contains(said, "It is kept from format 3") {
		t.Errorf("it does not say what keeps the shard: %d, %s", code, said)
	}
	old.Signal(syscall.SIGTERM)
	if code := old.Wait(); code != 0 {
		t.Fatalf("%s ended with %d", old.Name(), code)
	}
	harness.Eventually(t, "nothing keeps the shard from format 3", func() bool {
		said, code := regent("upgrade", "status")
		return code == 0 && strings.Contains(said, "regent upgrade finalize --shard=root")
	})
	for range 2 { // the second time there is nothing to do
		if said, code := regent("upgrade", "finalize"); code != 0 || !strings.Contains(said, "shard root is in format 3, which versions from v9.0.0 on read") {
			t.Errorf("without it: %d, %s", code, said)
		}
	}
	old.Binary = harness.Binary("regent")
	old.Again()
	if code := old.Wait(); code != 2 || !strings.Contains(old.Log(), "it is in format 3, which versions from v9.0.0 on read") {
		t.Errorf("one that does not read it ended with %d:\n%s", code, old.Log())
	}
	fresh[0].Signal(syscall.SIGTERM)
	fresh[0].Wait()
	fresh[0].Again()
	awaitReady(t, fresh, "root", "before")
}

// I15: what a version has stored of a workspace stays as it is when the shard goes on to the format in which most of it
// is built in. New workspaces are served in the same way, and both go without a trace.
func TestWorkspacesOfBothFormatsAreServedAlikeI15(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Binary = harness.Program(t, "faulty")
	old := shard.Start(t, "old", "--formats=1")
	old.WaitRoot()
	old.CreateWorkspace("before")
	old.WaitWorkspace("before")
	shard.Binary = harness.Binary("regent")
	fresh := shard.Start(t, "fresh")
	fresh.CreateWorkspace("between")
	old.Signal(syscall.SIGTERM)
	if code := old.Wait(); code != 0 {
		t.Fatalf("%s ended with %d", old.Name(), code)
	}
	fresh.WaitWorkspace("between")
	harness.Eventually(t, "the shard goes on to format 2", func() bool {
		cmd := harness.Command(t, "regent", "upgrade", "finalize", "--kubeconfig="+filepath.Join(fresh.Root, "admin.kubeconfig"), "--server="+fresh.URL)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode() == 0 && strings.Contains(strings.Join(strings.Fields(string(out)), " "), "is in format 2")
	})
	fresh.CreateWorkspace("after")
	count := func(cluster string) int64 {
		stored, err := etcd.Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for _, kv := range stored.Kvs {
			if strings.Contains(string(kv.Key), "/"+cluster+"/") {
				n++
			}
		}
		return n
	}
	var all []string
	for _, name := range []string{"before", "between", "after"} {
		cluster := fresh.WaitWorkspace(name)
		all = append(all, cluster)
		harness.Eventually(t, name+" has what every workspace has", func() bool {
			for _, path := range []string{"namespaces/default", "namespaces/kube-system/serviceaccounts/default", "namespaces/default/configmaps/kube-root-ca.crt"} {
				if status, _ := fresh.Get("/clusters/" + cluster + "/api/v1/" + path); status != http.StatusOK {
					return false
				}
			}
			return true
		})
		if name == "after" {
			if stored := count(cluster); stored != 1 {
				t.Errorf("%s has %d objects in etcd, want its LogicalCluster only", name, stored)
			}
		} else {
			harness.Eventually(t, "what "+name+" has is stored", func() bool { return count(cluster) >= 7 })
		}
		if err := fresh.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, cluster := range all {
		harness.Eventually(t, "nothing is left of "+cluster, func() bool { return count(cluster) == 0 })
	}
}
