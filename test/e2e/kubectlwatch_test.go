package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// kubectlWatch is a kubectl that watches, and has shown what is there.
type kubectlWatch struct {
	output lockedBuffer
	ended  chan error
	status error // once mustEnd has returned
}

// startKubectl returns when its output contains shown.
func startKubectl(t *testing.T, k kubectl, shown string, args ...string) *kubectlWatch {
	t.Helper()
	return startWatch(t, k.KubectlCommand(k.cluster, args...), shown)
}

func startWatch(t *testing.T, cmd *exec.Cmd, shown string) *kubectlWatch {
	t.Helper()
	w := &kubectlWatch{ended: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = &w.output, &w.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		w.ended <- cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	harness.Eventually(t, "kubectl shows what is there", func() bool { return strings.Contains(w.output.String(), shown) })
	return w
}

func (w *kubectlWatch) mustEnd(t *testing.T) {
	t.Helper()
	select {
	case w.status = <-w.ended:
	case <-time.After(harness.Patience):
		t.Errorf("kubectl goes on, it said: %s", w.output.String())
	}
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
