package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/proxy"
)

// Installation is several shards that are one system, each with an etcd and replicas of its own.
type Installation struct {
	t testing.TB
	// Root is the first shard. Others are all others.
	Root   *ShardMember
	Others []*ShardMember

	timings Timings
	binary  string // of all processes, and of commands
	etcd    EtcdConfig
	fronts  int
	port    int      // of the first front, under which users know the installation
	network *network // nil: shards reach each other directly
}

// ShardMember is a shard of an installation.
type ShardMember struct {
	*Shard
	Etcd     *Etcd
	Replicas []*Replica
	// Membership is the file with which its replicas join. The root shard has none.
	Membership string
}

// Install starts shard root and others, of two replicas each, and returns when all are ready and hear each other. The
// URLs of workspaces, and in the administrator's kubeconfig, are the first front's, which StartFront starts.
func Install(t testing.TB, others ...string) *Installation {
	t.Helper()
	return install(t, &Installation{t: t, timings: Short}, others)
}

// InstallLong is Install with the product's timings of elections: for scenarios in which no term is to end.
func InstallLong(t testing.TB, others ...string) *Installation {
	t.Helper()
	return install(t, &Installation{t: t, timings: Default}, others)
}

// InstallFrom is InstallLong with another server, a path, than bin/regent. What a process is started from later is its
// field Binary.
func InstallFrom(t testing.TB, binary string, others ...string) *Installation {
	t.Helper()
	return install(t, &Installation{t: t, timings: Default, binary: binary}, others)
}

// InstallOn is InstallLong with etcds of another make than StartEtcd's.
func InstallOn(t testing.TB, etcd EtcdConfig, others ...string) *Installation {
	t.Helper()
	return install(t, &Installation{t: t, timings: Default, etcd: etcd}, others)
}

// InstallApart is Install with a network between each two shards, and before each shard one for its fronts and users.
// They can be cut (Between, From).
func InstallApart(t testing.TB, others ...string) *Installation {
	t.Helper()
	return install(t, &Installation{t: t, timings: Short, network: &network{ways: map[way]*proxy.Proxy{}}}, others)
}

func install(t testing.TB, i *Installation, others []string) *Installation {
	t.Helper()
	if i.port = FreePorts(t, 1)[0]; i.binary == "" {
		i.binary = Binary("regent")
	}
	if i.etcd.Members == 0 {
		i.etcd.Members = DefaultMembers
	}
	url := fmt.Sprintf("--shard-base-url=https://127.0.0.1:%d", i.port)
	i.Root = i.newShardMember(t, "root")
	i.Root.Args = []string{url}
	for _, replica := range []string{"a", "b"} {
		i.Root.Replicas = append(i.Root.Replicas, i.Root.Start(t, "root-"+replica))
	}
	i.Root.Replicas[0].WaitRoot()
	i.regent(append([]string{"shard", "set", "root"}, i.urls(i.Root)...)...)
	for _, name := range others {
		membership := filepath.Join(t.TempDir(), name+".yaml")
		m := i.newShardMember(t, name)
		m.Membership = membership
		m.Args, m.admin = []string{"--membership=" + membership, url}, i.Root.Replicas[0].Root
		for _, replica := range []string{"a", "b"} { // others must know their URLs before they start
			m.Replicas = append(m.Replicas, m.prepare(t, name+"-"+replica))
		}
		add := append([]string{"shard", "add", name, "--pki-directory=" + filepath.Join(i.Root.Replicas[0].Root, "pki")}, i.urls(m)...)
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

func (i *Installation) newShardMember(t testing.TB, name string) *ShardMember {
	t.Helper()
	m := &ShardMember{Etcd: StartEtcdOf(t, i.etcd)}
	m.Shard = NewShard(m.Etcd.URL)
	m.Shard.Name, m.Shard.Timings, m.Shard.Binary = name, i.timings, i.binary
	return m
}

// urls are the flags that name a shard's replicas, as others reach them.
func (i *Installation) urls(m *ShardMember) (flags []string) {
	i.t.Helper()
	if i.network != nil {
		i.network.join(i.t, m)
	}
	for _, r := range m.Replicas {
		url := r.URL
		if i.network != nil {
			url = i.network.door(i.t, r)
		}
		flags = append(flags, "--replica="+url)
	}
	return flags
}

// Kill ends the shard, its replicas and its etcd, by SIGKILL.
func (m *ShardMember) Kill() {
	m.KillReplicas()
	m.Etcd.Kill()
}

// KillReplicas ends the replicas by SIGKILL.
func (m *ShardMember) KillReplicas() {
	for _, r := range m.Replicas {
		r.Kill()
	}
}

// Again starts what Kill has ended, and does not wait for the replicas.
func (m *ShardMember) Again(t testing.TB) {
	t.Helper()
	m.Etcd.Start(t)
	for _, r := range m.Replicas {
		r.Again()
	}
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
	return i.TryRegentOf(i.binary, args...)
}

// TryRegentOf is TryRegent with a program of another version.
func (i *Installation) TryRegentOf(binary string, args ...string) (string, error) {
	cmd := command(i.t, binary, append(args, "--server="+i.Root.Replicas[0].URL)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), &commandError{err, said.String()}
	}
	return string(out), nil
}

// Kubeconfig is the administrator's. It leads to the first front.
func (i *Installation) Kubeconfig() string {
	return filepath.Join(i.Root.Replicas[0].Root, "admin.kubeconfig")
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

// Front is a front's process. It keeps a snapshot, and knows how to be started again on its port.
type Front struct {
	*Process
	URL string
	// Binary is what Again starts.
	Binary string

	t     testing.TB
	admin string // root directory with the administrator's credentials
	name  string
	args  []string
	n     int

	snapshot  string
	byContent bool

	// Membership is the file with which it joins.
	Membership string
}

// StartFront starts a front, with further flags, and returns when it is ready.
func (i *Installation) StartFront(args ...string) *Front {
	i.t.Helper()
	i.fronts++
	name := fmt.Sprintf("front-%d", i.fronts)
	root, directory := i.Root.Replicas[0].Root, i.t.TempDir()
	membership := filepath.Join(directory, name+".yaml")
	if err := os.WriteFile(membership, []byte(i.regent("front", "add", name, "--pki-directory="+filepath.Join(root, "pki"))), 0o600); err != nil {
		i.t.Fatal(err)
	}
	port := i.port
	if i.fronts > 1 {
		port = FreePorts(i.t, 1)[0]
	}
	f := &Front{t: i.t, Binary: i.binary, URL: fmt.Sprintf("https://127.0.0.1:%d", port), admin: root, name: name, snapshot: filepath.Join(directory, name+".json"), Membership: membership}
	f.args = append([]string{"front", "--membership=" + membership, fmt.Sprintf("--secure-port=%d", port), "--snapshot-file=" + f.snapshot}, args...)
	f.Again()
	f.WaitReady()
	return f
}

// Again starts it anew, after it has ended, and does not wait.
func (f *Front) Again() {
	f.t.Helper()
	f.n++
	f.Process = Start(f.t, fmt.Sprintf("%s-%d", f.name, f.n), f.Binary, f.args...)
}

// WaitReady waits for /readyz.
func (f *Front) WaitReady() {
	f.t.Helper()
	Eventually(f.t, f.name+" is ready", func() bool {
		status, _ := f.Get("/readyz")
		return status == http.StatusOK
	})
}

// WaitSnapshot waits for the first snapshot.
func (f *Front) WaitSnapshot() {
	f.t.Helper()
	Eventually(f.t, f.name+" has a snapshot", func() bool {
		_, err := os.Stat(f.snapshot)
		return err == nil
	})
}

// Name is the front's.
func (f *Front) Name() string { return f.name }

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

// Config is that of the ordinary user, for a logical cluster; the administrator's for what is in no cluster of users.
func (f *Front) Config(cluster string) *rest.Config {
	if ofUsers(cluster) && !f.byContent {
		return credentialsIn(f.t, f.admin).config(f.URL, cluster)
	}
	return f.AdminConfig(cluster)
}

// ReadKeysAgain is as a replica's.
func (f *Front) ReadKeysAgain() { f.byContent = true }

// AdminConfig is the administrator's, for any cluster.
func (f *Front) AdminConfig(cluster string) *rest.Config {
	pki := filepath.Join(f.admin, "pki")
	config := &rest.Config{Host: f.URL + "/clusters/" + cluster, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key"),
	}}
	if f.byContent {
		if err := rest.LoadTLSFiles(config); err != nil {
			f.t.Fatal(err)
		}
		config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	}
	return config
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
