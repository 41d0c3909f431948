package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Timings are those of the election.
type Timings struct{ Lease, Renew, Retry time.Duration }

// Short timings are for scenarios that have to wait for an expiry. Default are the product's.
var (
	Short   = Timings{Lease: 3 * time.Second, Renew: 2 * time.Second, Retry: 300 * time.Millisecond}
	Default = Timings{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
)

// Shard says how the replicas of a shard are started.
type Shard struct {
	// Name is the shard's, root by default, Prefix its prefix in etcd, /registry by default.
	Name, Prefix string
	// Etcd is the URL of the shard's etcd; empty: embedded.
	Etcd    string
	Timings Timings
	// Binary is the server's, bin/regent by default.
	Binary string
	// Args are further flags of all replicas.
	Args []string

	keys string // where the first replica's pki is, for the others
}

// NewShard returns a shard on an etcd, with short timings and election.
func NewShard(etcd string) *Shard {
	return &Shard{Name: "root", Prefix: "/registry", Etcd: etcd, Timings: Short, Binary: Binary("regent")}
}

// Start starts a replica with a root directory of its own, and returns when it is ready. All replicas of the shard have
// the same keys, as on machines of their own.
func (s *Shard) Start(t testing.TB, name string, args ...string) *Replica {
	t.Helper()
	r := s.Launch(t, name, args...)
	r.WaitReady()
	return r
}

// Launch is Start, but does not wait.
func (s *Shard) Launch(t testing.TB, name string, args ...string) *Replica {
	t.Helper()
	r := &Replica{t: t, shard: s, name: name, Root: filepath.Join(t.TempDir(), name), args: args}
	if s.keys != "" {
		if err := os.CopyFS(filepath.Join(r.Root, "pki"), os.DirFS(s.keys)); err != nil {
			t.Fatal(err)
		}
	} else {
		s.keys = filepath.Join(r.Root, "pki")
	}
	r.port = FreePorts(t, 1)[0]
	r.URL = fmt.Sprintf("https://127.0.0.1:%d", r.port)
	r.Again()
	return r
}

// flags are those of a replica.
func (s *Shard) flags(root string, port int) []string {
	flags := []string{
		"start", "--root-directory=" + root, fmt.Sprintf("--secure-port=%d", port),
		"--shard-name=" + s.Name, "--etcd-prefix=" + s.Prefix, "--profiling",
		"--enable-leader-election",
		"--leader-election-lease-duration=" + s.Timings.Lease.String(),
		"--leader-election-renew-deadline=" + s.Timings.Renew.String(),
		"--leader-election-retry-period=" + s.Timings.Retry.String(),
	}
	if s.Etcd != "" {
		flags = append(flags, "--etcd-servers="+s.Etcd)
	}
	return append(flags, s.Args...)
}
