package releases

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/test/e2e/harness"
)

// Restore starts an etcd with what the release had stored, as docs/BACKUP.md does, but at the same revision. It returns
// a shard on it, of which no replica runs yet.
func (d *Data) Restore(t testing.TB) (*harness.Etcd, *harness.Shard) {
	t.Helper()
	harness.Program(t, "etcdctl") // and etcdutl, which is the same
	etcd := harness.StartEtcdOf(t, harness.EtcdConfig{Members: 1})
	etcd.Kill()
	m := etcd.Members[0]
	if err := os.RemoveAll(m.Directory()); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "etcd.db")
	if err := os.WriteFile(snapshot, d.Snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	restore := harness.Command(t, "etcdutl", "snapshot", "restore", snapshot, "--data-dir="+m.Directory(), "--name="+m.Name,
		"--initial-cluster="+m.Name+"="+m.PeerURL(), "--initial-advertise-peer-urls="+m.PeerURL())
	if said, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	etcd.Start(t)
	return etcd, d.shard(etcd)
}

// shard is the release's, on an etcd.
func (d *Data) shard(etcd *harness.Etcd) *harness.Shard {
	shard := Shard(etcd, d.Encryption)
	shard.Keys = d.Keys
	return shard
}

// Shard is that of each release, on an etcd, with a file that says what is encrypted.
func Shard(etcd *harness.Etcd, encryption string) *harness.Shard {
	shard := harness.NewShard(etcd.URL).Renewed()
	shard.Name, shard.Prefix, shard.Timings = Name, Prefix, harness.Default
	// What it tells of its capacity follows from its flags, whose default was 100,000 before 0.3.0.
	shard.Args = []string{"--encryption-provider-config=" + encryption, "--shard-capacity=100000"}
	return shard
}

// Snapshot returns a snapshot of an etcd that nobody writes to, with the last version of each key only.
func Snapshot(t testing.TB, etcd *harness.Etcd) []byte {
	t.Helper()
	client := etcd.Client(t)
	now, err := client.Get(t.Context(), Prefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), etcd.URL); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "etcd.db")
	etcdctl(t, etcd, "snapshot", "save", file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func etcdctl(t testing.TB, etcd *harness.Etcd, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Program(t, "etcdctl"), append([]string{"--endpoints=" + etcd.URL}, args...)...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("etcdctl %q: %v\n%s", args, err, said)
	}
}
