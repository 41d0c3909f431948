package regenttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// asVictim, in the environment, makes this binary a test's process that is killed: it starts a server, says which
// processes it has, and waits.
const asVictim = "REGENTTEST_VICTIM"

func victim() int {
	code, err := runMain(func() int {
		var pids []string
		for _, p := range victims.processes {
			pids = append(pids, fmt.Sprint(p.PID()))
		}
		if runtime.GOOS == "linux" { // elsewhere one that is paused outlives it
			must(&fake{}, victims.Replicas[0].pause(context.Background()))
		}
		fmt.Println(strings.Join(pids, " "))
		select {}
	}, func(s *Server) { victims = s }, []Option{Replicas(2)})
	fmt.Fprintln(os.Stderr, code, err)
	return 1
}

var victims *Server

// A test's process that is killed cannot clean up.
func TestATestThatIsKilledLeavesNoProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), asVictim+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	pids := strings.Fields(said)
	if len(pids) != 3 {
		t.Fatalf("it says %q", said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, text := range pids {
		var pid int
		if _, err := fmt.Sscan(text, &pid); err != nil {
			t.Fatal(err)
		}
		must(t, until(ctx, "process "+text+" has ended", func(context.Context) error {
			if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || isZombie(pid) {
				return nil
			}
			return errors.New("it runs")
		}))
	}
}

// isZombie reports whether a process has ended and nobody has asked how: where nobody adopts orphans.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, found := strings.Cut(string(stat), ") ")
	return err == nil && found && strings.HasPrefix(state, "Z")
}

// What Main does with the outcome of tests, and that nothing runs after it.
func TestMainEndsTheServerAndTellsHowItWent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(*Server) int
		code int
		want string
	}{
		{"all well", func(*Server) int { return 0 }, 0, ""},
		{"a test has failed", func(*Server) int { return 1 }, 1, "---- root-replica-0 (pid "},
		{"a process has ended", func(s *Server) int {
			must(t, syscall.Kill(s.Etcd.PID(), syscall.SIGKILL))
			<-s.Etcd.run.ended
			return 0
		}, 0, "root-etcd (pid "},
	} {
		var server *Server
		code, err := runMain(func() int { return c.run(server) }, func(s *Server) { server = s }, nil)
		if code != c.code || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d, %v", c.name, code, err)
		}
		for _, p := range server.processes {
			if p.runs() {
				t.Errorf("%s: %s still runs", c.name, p.Name())
			}
		}
		if _, err := os.Stat(server.directory); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its directory is left: %v", c.name, err)
		}
	}
	if code, err := runMain(func() int { t.Error("tests were run"); return 0 }, func(*Server) {}, []Option{Shards(-1)}); code != 1 || err == nil {
		t.Errorf("it goes on with %d, %v", code, err)
	}
}
