package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Installation is several shards that are one system, each with an etcd and replicas of its own.
type Installation struct {
	t testing.TB
	// Root is the first shard. Others are all others.
	Root   *ShardMember
	Others []*ShardMember
	fronts int
}

// ShardMember is a shard of an installation.
type ShardMember struct {
	*Shard
	Etcd     *Etcd
	Replicas []*Replica
}

// Install starts shard root and others, of two replicas each, and returns when all are ready and hear each other.
func Install(t testing.TB, others ...string) *Installation {
	t.Helper()
	i := &Installation{t: t}
	i.Root = newShardMember(t, "root")
	for _, replica := range []string{"a", "b"} {
		i.Root.Replicas = append(i.Root.Replicas, i.Root.Start(t, "root-"+replica))
	}
	i.Root.Replicas[0].WaitRoot()
	i.regent(append([]string{"shard", "set", "root"}, i.Root.urls()...)...)
	for _, name := range others {
		membership := filepath.Join(t.TempDir(), name+".yaml")
		m := newShardMember(t, name)
		m.Args, m.admin = []string{"--membership=" + membership}, i.Root.Replicas[0].Root
		for _, replica := range []string{"a", "b"} { // others must know their URLs before they start
			m.Replicas = append(m.Replicas, m.prepare(t, name+"-"+replica))
		}
		add := append([]string{"shard", "add", name, "--pki-directory=" + filepath.Join(i.Root.Replicas[0].Root, "pki")}, m.urls()...)
		if err := os.WriteFile(membership, []byte(i.regent(add...)), 0o600); err != nil {
			t.Fatal(err)
		}
		i.Others = append(i.Others, m)
		for _, r := range m.Replicas {
			r.Again()
		}
	}
	for _, m := range i.All() {
		m.WaitHeard(t, len(others))
	}
	return i
}

func newShardMember(t testing.TB, name string) *ShardMember {
	t.Helper()
	m := &ShardMember{Etcd: StartEtcd(t)}
	m.Shard = NewShard(m.Etcd.URL)
	m.Shard.Name = name
	return m
}

// urls are the flags that name the replicas.
func (m *ShardMember) urls() (flags []string) {
	for _, r := range m.Replicas {
		flags = append(flags, "--replica="+r.URL)
	}
	return flags
}

// All are all shards.
func (i *Installation) All() []*ShardMember { return append([]*ShardMember{i.Root}, i.Others...) }

// regent runs a command and returns its output.
func (i *Installation) regent(args ...string) string {
	i.t.Helper()
	out, err := i.TryRegent(args...)
	if err != nil {
		i.t.Fatalf("regent %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TryRegent runs a command as the root shard's administrator. The error has what it says.
func (i *Installation) TryRegent(args ...string) (string, error) {
	cmd := exec.CommandContext(i.t.Context(), Binary("regent"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(i.Root.Replicas[0].Root, "admin.kubeconfig"))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), &commandError{err, said.String()}
	}
	return string(out), nil
}

type commandError struct {
	error
	said string
}

func (e *commandError) Error() string { return e.error.Error() + ": " + e.said }

// Leader is the replica that leads, once there is one.
func (m *ShardMember) Leader(t testing.TB) (leader *Replica) {
	t.Helper()
	Eventually(t, "somebody leads "+m.Name, func() bool {
		for _, r := range m.Replicas {
			if r.Alive() && r.Leads() {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// Front is a front's process.
type Front struct {
	*Process
	URL string

	t     testing.TB
	admin string // root directory with the administrator's credentials
}

// StartFront starts a front, and returns when it is ready.
func (i *Installation) StartFront() *Front {
	i.t.Helper()
	i.fronts++
	name := fmt.Sprintf("front-%d", i.fronts)
	root := i.Root.Replicas[0].Root
	membership := filepath.Join(i.t.TempDir(), name+".yaml")
	if err := os.WriteFile(membership, []byte(i.regent("front", "add", name, "--pki-directory="+filepath.Join(root, "pki"))), 0o600); err != nil {
		i.t.Fatal(err)
	}
	port := FreePorts(i.t, 1)[0]
	f := &Front{t: i.t, URL: fmt.Sprintf("https://127.0.0.1:%d", port), admin: root}
	f.Process = Start(i.t, name, Binary("regent"), "front", "--membership="+membership, fmt.Sprintf("--secure-port=%d", port))
	Eventually(i.t, name+" is ready", func() bool {
		status, _ := f.Get("/readyz")
		return status == http.StatusOK
	})
	return f
}

// Get reads a path as the administrator, once. The status is 0 if there was no answer.
func (f *Front) Get(path string) (status int, body string) {
	f.t.Helper()
	client, err := rest.HTTPClientFor(f.Config(""))
	if err != nil {
		f.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.URL+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(content)
}

// Config is the administrator's, for a logical cluster.
func (f *Front) Config(cluster string) *rest.Config {
	pki := filepath.Join(f.admin, "pki")
	return &rest.Config{Host: f.URL + "/clusters/" + cluster, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key"),
	}}
}

// Kube is a client for a logical cluster.
func (f *Front) Kube(cluster string) kubernetes.Interface {
	f.t.Helper()
	client, err := kubernetes.NewForConfig(f.Config(cluster))
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

// Dynamic is a client for a logical cluster.
func (f *Front) Dynamic(cluster string) dynamic.Interface {
	f.t.Helper()
	client, err := dynamic.NewForConfig(f.Config(cluster))
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

// WaitHeard waits until all replicas are ready and hear so many other shards.
func (m *ShardMember) WaitHeard(t testing.TB, n int) {
	t.Helper()
	for _, r := range m.Replicas {
		r.WaitReady()
		Eventually(t, r.name+" hears the others", func() bool { return r.MetricSum("regent_shards_heard") == float64(n) })
	}
}
