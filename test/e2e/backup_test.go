package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/test/e2e/harness"
)

// backupCommands returns what the page about backups has typed below a heading, in one script for each block.
func backupCommands(t *testing.T, heading string) (scripts []string) {
	t.Helper()
	for _, b := range documented(t) {
		if b.page == "docs/BACKUP.md" && b.heading == "### "+heading && b.language == "sh" {
			scripts = append(scripts, b.text)
		}
	}
	if len(scripts) == 0 {
		t.Fatalf("docs/BACKUP.md has no commands below %q", heading)
	}
	return scripts
}

// What was written before the backup is there after the restore, and what was written later is not. The shard takes
// writes again.
func TestABackupOfTheEmbeddedEtcdIsRestoredAsDocumented(t *testing.T) {
	t.Parallel()
	r := newReader(t, tour{name: "backup", ports: 3})
	r.dev.kubectl("", "create", "configmap", "before", "--from-literal=a=b")
	for _, script := range backupCommands(t, "Back up the embedded etcd") {
		r.typed(script)
	}
	r.dev.kubectl("", "create", "configmap", "after", "--from-literal=a=b")
	r.dev.stop()
	for _, script := range backupCommands(t, "Restore the embedded etcd") {
		r.typed(script)
	}
	r.dev.start()
	r.dev.kubectl("", "get", "configmap", "before")
	if out, err := r.dev.run("kubectl", "", "get", "configmap", "after"); err == nil || !strings.Contains(out, "NotFound") {
		t.Errorf("what the backup does not have: %v\n%s", err, out)
	}
	r.dev.createWorkspace("again")
	r.dev.stop()
}

// ownEtcd is an etcd of three members with TLS, and where the documented commands run.
type ownEtcd struct {
	*testing.T
	*harness.Etcd
	directory string
}

// typed runs a documented script for one member.
func (e *ownEtcd) typed(script string, m *harness.Member) {
	e.Helper()
	var cluster []string
	for _, one := range e.Members {
		cluster = append(cluster, one.Name+"="+one.PeerURL())
	}
	file := func(flag string) string {
		for _, given := range e.Flags() {
			if name, ok := strings.CutPrefix(given, flag+"="); ok {
				return name
			}
		}
		e.Fatalf("%q has no %s", e.Flags(), flag)
		return ""
	}
	here := strings.NewReplacer(
		"etcd-0=https://etcd-0.example:2380,etcd-1=https://etcd-1.example:2380,etcd-2=https://etcd-2.example:2380", strings.Join(cluster, ","),
		"=https://etcd-0.example:2380", "="+m.PeerURL(), "https://etcd-0.example:2379", m.URL, "--name=etcd-0", "--name="+m.Name, "/var/lib/etcd", m.Directory(),
		"ETCDCTL_CACERT=ca.crt", "ETCDCTL_CACERT="+file("--etcd-cafile"),
		"ETCDCTL_CERT=client.crt", "ETCDCTL_CERT="+file("--etcd-certfile"), "ETCDCTL_KEY=client.key", "ETCDCTL_KEY="+file("--etcd-keyfile"),
	).Replace(script)
	cmd := exec.CommandContext(e.Context(), "bash", "-ec", fmt.Sprintf("etcdctl() { %q \"$@\"; }; etcdutl() { (exec -a etcdutl %[1]q \"$@\"); }\n%s", harness.Program(e, "etcdctl"), here))
	cmd.Dir = e.directory
	if said, err := cmd.CombinedOutput(); err != nil {
		e.Fatalf("%s: %v\n%s", here, err, said)
	}
}

func TestABackupOfAnEtcdOfOnesOwnIsRestoredAsDocumented(t *testing.T) {
	t.Parallel()
	etcd := &ownEtcd{t, harness.StartEtcdOf(t, harness.EtcdConfig{Members: 3, TLS: true}), t.TempDir()}
	shard := harness.NewShard(etcd.URL)
	shard.Args = etcd.Flags()[1:]
	r := shard.Start(t, "a")
	r.WaitRoot()
	r.CreateWorkspace("before")
	r.WaitWorkspace("before")
	first := etcd.Members[0]
	save := backupCommands(t, "Back up an etcd of one's own")
	for _, script := range save {
		etcd.typed(script, first)
	}
	r.CreateWorkspace("after")
	r.WaitWorkspace("after")

	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != 0 {
		t.Errorf("the replica ended with %d", code)
	}
	etcd.Kill()
	restore := backupCommands(t, "Restore an etcd of one's own")
	for _, m := range etcd.Members {
		etcd.typed(restore[0], m)
	}
	etcd.Start(t)
	settings, _, _ := strings.Cut(save[0], "etcdctl snapshot")
	etcd.typed(settings+restore[1], first)
	r.Again()
	r.WaitReady()
	r.WaitWorkspace("before")
	if _, err := r.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a workspace that the backup does not have: %v, want that it is not found", err)
	}
	r.CreateWorkspace("again")
	r.WaitWorkspace("again")
}
