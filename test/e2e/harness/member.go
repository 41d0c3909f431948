package harness

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/test/e2e/proxy"
)

// Member is a member of an etcd.
type Member struct {
	*Process
	Name string
	// Binary is what it is started from, a path.
	Binary string
	// URL is where clients reach it, listens where it listens for them. They differ if there is a network between
	// them.
	URL, listens string

	peerURL, peerListens string
	directory            string
	args                 []string
	keys                 *keys
	n                    int
	pid                  atomic.Int64 // of the process now; 0 before the first

	// The networks, if any: of its clients, and of its peers, both ways.
	clients *proxy.Proxy
	peers   []*proxy.Proxy
}

func newMember(t testing.TB, keys *keys, number int) *Member {
	t.Helper()
	scheme := "http"
	if keys != nil {
		scheme = "https"
	}
	ports := FreePorts(t, 2)
	client, peer := fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[0]), fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[1])
	name := fmt.Sprintf("m%d", number)
	return &Member{
		Name: name, URL: client, listens: client, peerURL: peer, peerListens: peer, keys: keys,
		directory: filepath.Join(t.TempDir(), "etcd-"+name),
	}
}

// Directory has its data.
func (m *Member) Directory() string { return m.directory }

// PeerURL is where the other members reach it.
func (m *Member) PeerURL() string { return m.peerURL }

func (m *Member) flags(keys *keys, initial string) []string {
	flags := []string{
		"--name=" + m.Name, "--data-dir=" + m.directory, "--log-level=warn", "--quota-backend-bytes=8589934592",
		"--listen-client-urls=" + m.listens, "--advertise-client-urls=" + m.URL,
		"--listen-peer-urls=" + m.peerListens, "--initial-advertise-peer-urls=" + m.peerURL, "--initial-cluster=" + initial,
	}
	if keys == nil {
		return flags
	}
	return append(flags,
		"--client-cert-auth", "--trusted-ca-file="+keys.ca, "--cert-file="+keys.cert, "--key-file="+keys.key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+keys.ca, "--peer-cert-file="+keys.cert, "--peer-key-file="+keys.key)
}

// Start starts it, again if it was killed, on its data, and does not wait.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	m.n++
	etcd := exec.Command(m.Binary, m.args...)
	etcd.Env = append(os.Environ(), "SLOW_DISK="+m.delay())
	m.Process = start(t, fmt.Sprintf("etcd-%s-%d", m.Name, m.n), etcd)
	m.pid.Store(int64(m.PID()))
}

// SlowDown has each sync of its disk take longer by a delay. 0 ends that.
func (m *Member) SlowDown(t testing.TB, delay time.Duration) {
	t.Helper()
	if err := os.WriteFile(m.delay(), []byte(delay.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// delay is the file that says how slow its disk is, beside its data.
func (m *Member) delay() string { return m.directory + ".delay" }

// Isolate has nothing pass between it and its clients and peers any more, as if its machine's cable was pulled.
func (m *Member) Isolate() {
	m.clients.Stall()
	m.IsolateFromPeers()
}

// IsolateFromPeers is Isolate, but clients still reach it.
func (m *Member) IsolateFromPeers() {
	for _, p := range m.peers {
		p.Stall()
	}
}

// Rejoin ends Isolate.
func (m *Member) Rejoin() {
	m.clients.Resume()
	for _, p := range m.peers {
		p.Resume()
	}
}

// Writes reports whether a write of a key through this member is committed, and known to it, within a time.
func (m *Member) Writes(t testing.TB, key string, within time.Duration) bool {
	t.Helper()
	client := m.client(t)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := client.Put(ctx, key, "")
	return err == nil
}

// client is of this member alone. The caller closes it.
func (m *Member) client(t testing.TB) *clientv3.Client {
	t.Helper()
	return newEtcdClient(t, m.keys, m)
}

// leads reports whether it says that it leads raft.
func (m *Member) leads(t testing.TB) bool {
	t.Helper()
	client := m.client(t)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	status, err := client.Status(ctx, m.listens)
	return err == nil && status.Header.MemberId == status.Leader
}

// at is the address of a URL that the harness made.
func at(t testing.TB, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
