package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Store is a server of S3 with one bucket, which keeps its objects over restarts.
type Store struct {
	*Process
	// URL is that of the bucket, and Objects the directory with its objects.
	URL, Objects string

	t       testing.TB
	port    int
	binary  string
	started int
}

// storeKeys are the credentials of a Store, as its clients find them.
var storeKeys = []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=a-secret-key", "AWS_REGION=test-1"}

// StartStore starts one.
func StartStore(t testing.TB) *Store {
	t.Helper()
	s := &Store{t: t, port: FreePorts(t, 1)[0], binary: Program(t, "versitygw"), Objects: filepath.Join(t.TempDir(), "objects")}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d/backups", s.port)
	s.Again()
	return s
}

// Again starts it when it has ended.
func (s *Store) Again() {
	s.t.Helper()
	s.started++
	s.Process = s.StartWith(fmt.Sprint("store-", s.started), s.binary, "-address", fmt.Sprintf("127.0.0.1:%d", s.port), "-directory", filepath.Dir(s.Objects), "-bucket", "backups")
	Eventually(s.t, "the store listens", func() bool { return !PortFree(s.port) })
}

// StartWith starts a process with its credentials.
func (s *Store) StartWith(name, binary string, args ...string) *Process {
	s.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), storeKeys...)
	return start(s.t, name, cmd)
}

// Command is Command with its credentials.
func (s *Store) Command(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := Command(s.t, name, args...)
	cmd.Env = append(os.Environ(), storeKeys...)
	return cmd
}
