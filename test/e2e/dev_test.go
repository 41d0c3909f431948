package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// devShard is `regent dev`, as a user has it in a terminal.
type devShard struct {
	t     *testing.T
	cmd   *exec.Cmd
	enter io.WriteCloser
	root  string
	ended chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

func (d *devShard) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.output.Write(p)
}

func (d *devShard) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.output.String()
}

// startDev runs `regent dev` with two replicas and waits for what it says to try.
func startDev(t *testing.T) *devShard {
	t.Helper()
	// The replicas' ports follow the front's: a row of three must be free.
	var port int
	harness.Eventually(t, "three free ports in a row", func() bool {
		port = harness.FreePorts(t, 1)[0]
		return port+2 <= 65535 && harness.PortFree(port+1) && harness.PortFree(port+2)
	})
	d := &devShard{t: t, root: filepath.Join(t.TempDir(), "root"), ended: make(chan struct{})}
	d.cmd = exec.Command(harness.Binary("regent"), "dev", "--root-directory="+d.root, fmt.Sprintf("--secure-port=%d", port))
	d.cmd.Stdout, d.cmd.Stderr = d, d
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var err error
	if d.enter, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if t.Failed() {
			t.Logf("---- regent dev said:\n%s", d.said())
		}
	})
	harness.Eventually(t, "dev says what to try", func() bool { return strings.Contains(d.said(), "\n  kill -9 ") })
	return d
}

// kubectl runs kubectl as the user was told to.
func (d *devShard) kubectl(stdin string, args ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), harness.Binary("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(d.root, "admin.kubeconfig"), "HOME="+d.root)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (d *devShard) createWorkspace(name string) {
	d.t.Helper()
	d.kubectl(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"`+name+`"}}`, "create", "-f", "-")
	d.kubectl("", "wait", "workspace", name, "--for=jsonpath={.status.phase}=Ready", "--timeout="+harness.Patience.String())
}

// pids of the replicas, as dev told them.
func (d *devShard) pids() map[string]int {
	pids := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^  (replica-\d+) +pid (\d+)`).FindAllStringSubmatch(d.said(), -1) {
		pids[match[1]], _ = strconv.Atoi(match[2])
	}
	return pids
}

// leader returns the replica that dev named last as the one that leads.
func (d *devShard) leader() (name string, pid int) {
	all := regexp.MustCompile(`dev \| (replica-\d+) leads shard root, epoch \d+\. To kill it: kill -9 (\d+)`).FindAllStringSubmatch(d.said(), -1)
	if len(all) == 0 {
		return "", 0
	}
	pid, _ = strconv.Atoi(all[len(all)-1][2])
	return all[len(all)-1][1], pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestDevSurvivesTheDeathOfItsLeader(t *testing.T) {
	d := startDev(t)
	if len(d.pids()) != 2 {
		t.Fatalf("replicas %v", d.pids())
	}
	d.createWorkspace("before")
	first, pid := d.leader()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.createWorkspace("after") // through the same kubeconfig
	harness.Eventually(t, "dev names the next leader", func() bool { name, _ := d.leader(); return name != first })
	harness.Eventually(t, "dev tells of the death", func() bool {
		return strings.Contains(d.said(), fmt.Sprintf("%s (pid %d) has ended: signal: killed. Press Enter", first, pid))
	})
	if _, err := io.WriteString(d.enter, "\n"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, first+" is back in the same place", func() bool {
		cmd := exec.CommandContext(t.Context(), harness.Binary("kubectl"), "--context="+first, "get", "workspace", "after")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(d.root, "admin.kubeconfig"), "HOME="+d.root)
		return cmd.Run() == nil
	})
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "dev has stopped", func() bool {
		select {
		case <-d.ended:
			return true
		default:
			return false
		}
	})
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name, pid := range d.pids() {
		if alive(pid) {
			t.Errorf("%s (pid %d) has outlived dev", name, pid)
		}
	}
}

func TestReplicasEndWithADevThatIsKilled(t *testing.T) {
	d := startDev(t)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range d.pids() {
		harness.Eventually(t, name+" has ended", func() bool { return !alive(pid) })
	}
}
