package harness

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// DefaultMembers is of how many members StartEtcd makes an etcd.
var DefaultMembers = 1

// Etcd is a real etcd. Its ports and its data outlive a kill.
type Etcd struct {
	// URL is where clients reach it: a URL of each member, with commas between them.
	URL     string
	Members []*Member

	keys *keys // nil without TLS
}

// EtcdConfig says what an etcd is made of.
type EtcdConfig struct {
	Members int
	// TLS has members, and clients and members, show each other certificates.
	TLS bool
	// Binary is what its members are started from, a path; "": bin/etcd.
	Binary string
	// Networks puts proxies before the members, so that one can be cut off (Member.Isolate).
	Networks bool
}

// StartEtcd starts an etcd of DefaultMembers members, and returns when they serve.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	return StartEtcdOf(t, EtcdConfig{Members: DefaultMembers})
}

// StartEtcdOf starts an etcd, and returns when its members serve.
func StartEtcdOf(t testing.TB, config EtcdConfig) *Etcd {
	t.Helper()
	e := &Etcd{}
	if config.TLS {
		e.keys = newKeys(t)
	}
	for i := range config.Members {
		m := newMember(t, e.keys, i)
		m.Binary = cmp.Or(config.Binary, Binary("etcd"))
		e.Members = append(e.Members, m)
	}
	if config.Networks {
		e.putNetworksBetween(t)
	}
	var urls, initial []string
	for _, m := range e.Members {
		urls = append(urls, m.URL)
		initial = append(initial, m.Name+"="+m.peerURL)
	}
	e.URL = strings.Join(urls, ",")
	for _, m := range e.Members {
		m.args = m.flags(e.keys, strings.Join(initial, ","))
	}
	e.Start(t)
	return e
}

// Flags are those that lead a replica to it.
func (e *Etcd) Flags() []string {
	flags := []string{"--etcd-servers=" + e.URL}
	if e.keys != nil {
		flags = append(flags, "--etcd-cafile="+e.keys.ca, "--etcd-certfile="+e.keys.cert, "--etcd-keyfile="+e.keys.key)
	}
	return flags
}

// Start starts the members that do not run, on their data, and returns when all serve.
func (e *Etcd) Start(t testing.TB) {
	t.Helper()
	for _, m := range e.Members {
		if m.Process == nil || !m.Alive() {
			m.Start(t)
		}
	}
	e.WaitHealthy(t)
}

// WaitHealthy waits until each member answers a linearizable read, for which it must follow a leader.
func (e *Etcd) WaitHealthy(t testing.TB) {
	t.Helper()
	for _, m := range e.Members {
		client := m.client(t)
		Eventually(t, m.Name+" serves", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.Get(ctx, "/")
			return err == nil
		})
		_ = client.Close()
	}
}

// Leader waits until a member says that it leads raft, and returns it and the others. All must serve.
func (e *Etcd) Leader(t testing.TB) (leader *Member, followers []*Member) {
	t.Helper()
	Eventually(t, "a member leads raft", func() bool {
		leader, followers = nil, nil
		for _, m := range e.Members {
			if m.leads(t) {
				leader = m
			} else {
				followers = append(followers, m)
			}
		}
		return leader != nil && len(followers) == len(e.Members)-1
	})
	return leader, followers
}

// Signal sends a signal to all members.
func (e *Etcd) Signal(s syscall.Signal) {
	for _, m := range e.Members {
		m.Signal(s)
	}
}

// Kill ends all members by SIGKILL, and returns when they have ended.
func (e *Etcd) Kill() {
	e.Signal(syscall.SIGKILL)
	for _, m := range e.Members {
		m.Kill()
	}
}

// Copy copies its data, while it does not run, and returns where to.
func (e *Etcd) Copy(t testing.TB) string {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "backup")
	for _, m := range e.Members {
		if err := os.CopyFS(filepath.Join(backup, m.Name), os.DirFS(m.directory)); err != nil {
			t.Fatal(err)
		}
	}
	return backup
}

// Restore replaces its data, while it does not run, by what Copy returned.
func (e *Etcd) Restore(t testing.TB, backup string) {
	t.Helper()
	for _, m := range e.Members {
		if err := os.RemoveAll(m.directory); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(m.directory, os.DirFS(filepath.Join(backup, m.Name))); err != nil {
			t.Fatal(err)
		}
	}
}

// Client returns a client that lives as long as the test. Its way to the members is never cut.
func (e *Etcd) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client := newEtcdClient(t, e.keys, e.Members...)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newEtcdClient(t testing.TB, keys *keys, members ...*Member) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{DialTimeout: 5 * time.Second, Logger: zap.NewNop(), TLS: keys.client(t)}
	for _, m := range members {
		config.Endpoints = append(config.Endpoints, m.listens)
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
