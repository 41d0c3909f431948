package e2e

import (
	"bytes"
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/regent-project/regent/test/e2e/harness"
)

// devShard is `regent dev`, as a user has it in a terminal.
type devShard struct {
	t     *testing.T
	cmd   *exec.Cmd
	enter io.Writer // the keyboard of its terminal
	root  string
	flags []string
	ended chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

func (d *devShard) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.output.Write(p)
}

func (d *devShard) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.output.String()
}

// startDev runs `regent dev`, which needs so many ports in a row, and waits for what it says to try.
func startDev(t *testing.T, ports int, flags ...string) *devShard {
	t.Helper()
	port := fmt.Sprintf("--secure-port=%d", harness.FreePortsInARow(t, ports))
	d := &devShard{t: t, root: filepath.Join(t.TempDir(), "root"), flags: append(flags, port)}
	d.start()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if t.Failed() {
			t.Logf("---- regent dev said:\n%s", d.text())
			d.showLogs()
		}
	})
	return d
}

// showLogs shows the whole logs of the replicas, of which dev says only what a user needs.
func (d *devShard) showLogs() {
	files, _ := filepath.Glob(filepath.Join(d.root, "logs", "*"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		d.t.Logf("---- %s (%v):\n%s", filepath.Base(file), err, content)
	}
}

// start starts the process, and waits for what it says to try. A process before it must have ended.
func (d *devShard) start() {
	d.t.Helper()
	d.mu.Lock()
	d.output.Reset()
	d.mu.Unlock()
	d.ended = make(chan struct{})
	d.cmd = exec.Command(harness.Binary("regent"), append([]string{"dev", "--root-directory=" + d.root}, d.flags...)...)
	d.cmd.Stdout, d.cmd.Stderr = d, d
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	d.enter, d.cmd.Stdin = terminal(d.t)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait()
	}()
	harness.Eventually(d.t, "dev says what to try", func() bool { return strings.Contains(d.text(), "\n  kill -9 ") })
}

// terminal opens one: what is typed on the keyboard, a process reads that has the other end.
func terminal(t *testing.T) (keyboard, input *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	keyboard = open("/dev/ptmx")
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	return keyboard, open(fmt.Sprintf("/dev/pts/%d", number))
}

// stop presses Ctrl-C, and waits until dev and all its processes have ended.
func (d *devShard) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	harness.Eventually(d.t, "dev has stopped", func() bool {
		select {
		case <-d.ended:
			return true
		default:
			return false
		}
	})
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.t.Errorf("exit code %d", code)
	}
	for name, pid := range d.pids() {
		if alive(pid) {
			d.t.Errorf("%s (pid %d) has outlived dev", name, pid)
		}
	}
}

// kubectl runs kubectl as the user was told to.
func (d *devShard) kubectl(stdin string, args ...string) string {
	d.t.Helper()
	out, err := d.run("kubectl", stdin, args...)
	if err != nil {
		d.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// run runs a program with the kubeconfig that dev has written.
func (d *devShard) run(program, stdin string, args ...string) (string, error) {
	cmd := harness.Command(d.t, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(d.root, "admin.kubeconfig"), "HOME="+d.root)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (d *devShard) createWorkspace(name string) {
	d.t.Helper()
	d.kubectl(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"`+name+`"}}`, "create", "-f", "-")
	d.kubectl("", "wait", "workspace", name, "--for=jsonpath={.status.phase}=Ready", "--timeout="+harness.Patience.String())
}

// pids of the replicas, as dev told them.
func (d *devShard) pids() map[string]int {
	pids := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^  (\S*(?:replica|front)-\d+) +pid (\d+)`).FindAllStringSubmatch(d.text(), -1) {
		pids[match[1]], _ = strconv.Atoi(match[2])
	}
	return pids
}

// leader returns the replica that dev named last as the one that leads.
func (d *devShard) leader() (name string, pid int) {
	all := regexp.MustCompile(`dev \| (replica-\d+) leads shard root, epoch \d+\. To kill it: kill -9 (\d+)`).FindAllStringSubmatch(d.text(), -1)
	if len(all) == 0 {
		return "", 0
	}
	pid, _ = strconv.Atoi(all[len(all)-1][2])
	return all[len(all)-1][1], pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestDevSurvivesTheDeathOfItsLeader(t *testing.T) {
	d := startDev(t, 3)
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
	harness.Eventually(t, "dev says for how long nobody led, and why", func() bool {
		return regexp.MustCompile(`dev \| Nobody led shard root for \S+: the previous leader `).MatchString(d.text())
	})
	harness.Eventually(t, "dev tells of the death", func() bool {
		return strings.Contains(d.text(), fmt.Sprintf("%s (pid %d) has ended: signal: killed. Press Enter", first, pid))
	})
	if _, err := io.WriteString(d.enter, "\n"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, first+" is back in the same place", func() bool {
		_, err := d.run("kubectl", "", "--context="+first, "get", "workspace", "after")
		return err == nil
	})
	harness.Eventually(t, "dev says that it is ready", func() bool { return strings.Contains(d.text(), "dev | "+first+" is ready again, after ") })
	if strings.Contains(d.text(), "Serving securely") {
		t.Error("dev shows what no user needs")
	}
	for _, name := range []string{"replica-0", "replica-1"} {
		if log, err := os.ReadFile(filepath.Join(d.root, "logs", name+".log")); err != nil || !bytes.Contains(log, []byte("Serving securely")) {
			t.Errorf("the file has not the whole log of %s: %v", name, err)
		}
	}
	d.stop()
}

// Shards and fronts that are started at once wait for each other, and none takes that for an error. The log of each
// process says nothing that a reader would have to look after, and dev shows nothing but its own lines.
func TestAHealthyStartOfThreeShardsLogsNoError(t *testing.T) {
	d := startDev(t, 9, "--shards=3")
	shown, _, _ := strings.Cut(d.text(), "3 shards are one installation")
	for line := range strings.Lines(strings.TrimSpace(shown)) {
		if !strings.HasPrefix(line, "dev | ") {
			t.Errorf("dev shows %q", line)
		}
	}
	files, err := filepath.Glob(filepath.Join(d.root, "logs", "*.log"))
	if err != nil || len(files) != 9 { // of six replicas, two fronts, and all etcds
		t.Errorf("logs %q: %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^[EF]\d{4} .*`).FindAll(content, -1) {
			t.Errorf("%s: %s", filepath.Base(file), line)
		}
	}
	d.stop()
}

func TestReplicasEndWithADevThatIsKilled(t *testing.T) {
	d := startDev(t, 3)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range d.pids() {
		harness.Eventually(t, name+" has ended", func() bool { return !alive(pid) })
	}
}

// Several shards are one installation: one kubeconfig, one tree, and a shard or a front that is killed takes nothing
// else along. The installation is the same after a restart.
func TestDevRunsAnInstallation(t *testing.T) {
	t.Parallel()
	d := startDev(t, 5, "--shards=2", "--replicas=1")
	if got := d.pids(); len(got) != 4 {
		t.Fatalf("processes %v", got)
	}
	on := map[string]string{} // the URL of a workspace on each shard
	made := 0
	// until shards hear each other, all are on root
	harness.Eventually(t, "each shard has a workspace", func() bool {
		d.createWorkspace(fmt.Sprintf("ws-%d", made))
		made++
		for line := range strings.Lines(d.kubectl("", "get", "workspaces", "-o", `jsonpath={range .items[*]}{.metadata.labels.regent\.dev/shard} {.spec.URL}{"\n"}{end}`)) {
			shard, url, _ := strings.Cut(strings.TrimSpace(line), " ")
			on[shard] = url
		}
		return on["root"] != "" && on["shard-1"] != ""
	})
	d.kubectl("", "--server="+on["shard-1"], "create", "configmap", "first")
	d.kubectl("", "--context=shard-1/system:admin", "get", "lease", "-n", "kube-system", "regent-controllers")
	if out, err := d.run("regent", "", "shard", "list"); err != nil || !strings.Contains(out, "shard-1") {
		t.Errorf("regent shard list: %v\n%s", err, out)
	}
	for _, name := range []string{"root-replica-0", "front-0"} {
		if err := syscall.Kill(d.pids()[name], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	// Before it has died, a front may accept a connection, which breaks then.
	harness.Eventually(t, "dev tells of both deaths", func() bool { return strings.Count(d.text(), "has ended: signal: killed") == 2 })
	d.kubectl("", "--server="+on["shard-1"], "create", "configmap", "without-root")
	if err := d.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "root is back", func() bool { // kubectl itself tries for 10 s
		out, err := d.run("kubectl", "", "--server="+on["root"], "create", "configmap", "root-is-back")
		return err == nil || strings.Contains(out, "AlreadyExists")
	})
	d.stop()

	d.start()
	for shard, name := range map[string]string{"shard-1": "without-root", "root": "root-is-back"} {
		d.kubectl("", "--server="+on[shard], "get", "configmap", name)
	}
	d.createWorkspace("after")
	d.stop()
}
