package regenttest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// asVictim, in the environment, makes this binary a test's process that cannot clean up: it starts a server, says which
// processes it has, and ends in the way that the value names.
const asVictim = "REGENTTEST_VICTIM"

func victim(way string) int {
	var server *Server
	code, err := runMain(func() int {
		var pids []string
		for _, p := range server.processes {
			pids = append(pids, fmt.Sprint(p.PID()))
		}
		if runtime.GOOS == "linux" { // elsewhere one that is paused outlives it
			// no test is there, whose context it could have
			must(&fake{}, server.Replicas[0].pause(context.Background()))
		}
		fmt.Println(strings.Join(pids, " "))
		switch way {
		case "exit":
			os.Exit(1)
		case "panic":
			go panic("as a test wants it")
		}
		select {}
	}, func(s *Server) { server = s }, []Option{Replicas(2)})
	fmt.Fprintln(os.Stderr, code, err)
	return 1
}

func TestATestThatCannotCleanUpLeavesNoProcess(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"kill", "exit", "panic"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this binary
			cmd.Env = append(os.Environ(), asVictim+"="+way, "TMPDIR="+t.TempDir())
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids, err := bufio.NewReader(out).ReadString('\n')
			if way == "kill" || err != nil {
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
			if err != nil || len(strings.Fields(pids)) != 3 {
				t.Fatalf("it says %q, %v: %s", pids, err, &said)
			}
			if way == "panic" && !strings.Contains(said.String(), "as a test wants it") {
				t.Errorf("it has not ended by its panic: %s", &said)
			}
			allHaveEnded(t, strings.Fields(pids))
		})
	}
}

// allHaveEnded waits until no process of some runs.
func allHaveEnded(t *testing.T, pids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
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

// However a test ends that can clean up, its processes have ended when it has.
func TestATestThatFailsOrPanicsLeavesNoProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(t testing.TB)
	}{
		{"it fails", func(t testing.TB) { t.Fatalf("as it is wanted") }},
		{"it panics", func(testing.TB) { panic("as it is wanted") }},
		{"it fails while one is paused", func(t testing.TB) { t.Fatalf("as it is wanted") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var server *Server
			fails(t, func(t testing.TB) {
				server = Start(t)
				if strings.HasSuffix(c.name, "paused") {
					server.Replicas[0].Pause(t)
				}
				c.end(t)
			})
			for _, p := range server.processes {
				if p.runs() {
					t.Errorf("%s still runs", p.Name())
				}
			}
		})
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
