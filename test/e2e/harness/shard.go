package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Timings are those of the election.
type Timings struct{ Lease, Renew, Retry time.Duration }

// Short timings are for scenarios that have to wait for an expiry. Default are the product's. A short lease is lost now
// and then on a busy machine: a term that must not end has Default.
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
	// Mode is that of the election, DefaultMode by default.
	Mode string
	// OneMachine has the replicas share the first one's root directory, and so find each other's death by it. By
	// default only leaders for life do.
	OneMachine bool
	// Binary is the server's, bin/regent by default.
	Binary string
	// Args are further flags of all replicas.
	Args []string
	// Keys is a directory pki that the first replica begins with. By default it makes its own keys.
	Keys string

	root string // the first replica's
	// admin is the root directory whose administrator is that of the shard. Empty: each replica's own.
	admin string
	letIn sync.Once // the ordinary user
}

// DefaultMode is the mode of election of shards that name none.
var DefaultMode = Lease

// The modes.
const (
	Lease       = "lease"
	Coordinated = "coordinated"
	ForLife     = "for-life"
	ByPresence  = "by-presence"
)

// NewShard returns a shard on an etcd, with short timings and election.
func NewShard(etcd string) *Shard {
	return &Shard{Name: "root", Prefix: "/registry", Etcd: etcd, Timings: Short, Mode: DefaultMode, OneMachine: DefaultMode == ForLife, Binary: Binary("regent")}
}

// Renewed has leaders renew the lease, in whatever mode: for scenarios about a lease that is renewed, or expires.
func (s *Shard) Renewed() *Shard {
	if s.Mode == ForLife {
		s.Mode, s.OneMachine = Lease, false
	}
	return s
}

// Start starts a replica, and returns when it is ready. All replicas of the shard have the same keys; unless they are
// on one machine, each has a root directory of its own.
func (s *Shard) Start(t testing.TB, name string, args ...string) *Replica {
	t.Helper()
	r := s.Launch(t, name, args...)
	r.WaitReady()
	return r
}

// Launch is Start, but does not wait.
func (s *Shard) Launch(t testing.TB, name string, args ...string) *Replica {
	t.Helper()
	r := s.prepare(t, name, args...)
	r.Again()
	return r
}

// prepare is Launch, but starts no process.
func (s *Shard) prepare(t testing.TB, name string, args ...string) *Replica {
	t.Helper()
	r := &Replica{t: t, shard: s, name: name, Root: filepath.Join(t.TempDir(), name), args: args}
	switch {
	case s.root == "":
		s.root = r.Root
		if s.Keys != "" {
			if err := copyKeys(filepath.Join(r.Root, "pki"), s.Keys); err != nil {
				t.Fatal(err)
			}
		}
	case s.OneMachine:
		r.Root = s.root
	case s.admin != "": // it gets its keys by its membership
	default:
		if err := copyKeys(filepath.Join(r.Root, "pki"), filepath.Join(s.root, "pki")); err != nil {
			t.Fatal(err)
		}
	}
	r.port = FreePorts(t, 1)[0]
	r.URL = fmt.Sprintf("https://127.0.0.1:%d", r.port)
	return r
}

// copyKeys copies keys to another replica, for their owner only: others are refused.
func copyKeys(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(name, 0o700)
		}
		return os.Chmod(name, 0o600)
	})
}

// flags are those of a replica.
func (s *Shard) flags(root string, port int) []string {
	flags := []string{
		"start", "--root-directory=" + root, fmt.Sprintf("--secure-port=%d", port),
		"--shard-name=" + s.Name, "--etcd-prefix=" + s.Prefix, "--profiling",
		"--enable-leader-election", "--leader-election-mode=" + s.Mode,
		"--leader-election-lease-duration=" + s.Timings.Lease.String(),
		"--leader-election-renew-deadline=" + s.Timings.Renew.String(),
		"--leader-election-retry-period=" + s.Timings.Retry.String(),
	}
	if s.Etcd != "" {
		flags = append(flags, "--etcd-servers="+s.Etcd)
	}
	return append(flags, s.Args...)
}
