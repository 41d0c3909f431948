package regenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Start starts a server for a test, and returns when it can be used. It ends with the test.
//
// With -v it says how long that took, and where the administrator's kubeconfig is. If the test fails, the end of each
// process's log is shown; with -artifacts the whole logs are kept.
func Start(t testing.TB, all ...Option) *Server {
	t.Helper()
	o, err := newOptions(all)
	must(t, err)
	program, err := find(buildContext(t), o)
	must(t, err)
	logs, err := os.MkdirTemp(t.ArtifactDir(), "regent-")
	must(t, err)
	began := time.Now()
	s, err := start(t.Context(), o, program, t.TempDir(), logs)
	if err != nil {
		t.Fatalf("regenttest: cannot start regent: %v\n%s", err, s.tails())
	}
	s.owner = t
	t.Cleanup(func() {
		t.Helper()
		if err := s.stop(); err != nil {
			t.Errorf("regenttest: %v", err)
		}
		if t.Failed() {
			t.Logf("regenttest: %s", s.tails())
		}
	})
	t.Logf("regenttest: ready after %v: KUBECONFIG=%s", time.Since(began).Round(time.Millisecond), s.kubeconfig())
	return s
}

// Main is a TestMain whose tests share a server. It starts it, gives it to use, runs the tests, ends the server, and
// returns the code to exit with.
//
//	var server *regenttest.Server
//
//	func TestMain(m *testing.M) {
//		os.Exit(regenttest.Main(m, func(s *regenttest.Server) { server = s }))
//	}
//
// If a test fails, the end of each process's log is shown after all tests.
func Main(m *testing.M, use func(*Server), all ...Option) (code int) {
	code, err := runMain(m.Run, use, all)
	if err != nil {
		fmt.Fprintf(os.Stderr, "regenttest: %v\n", err)
		return max(code, 1)
	}
	return code
}

func runMain(run func() int, use func(*Server), all []Option) (code int, err error) {
	o, err := newOptions(all)
	if err != nil {
		return 1, err
	}
	program, err := find(context.Background(), o)
	if err != nil {
		return 1, err
	}
	directory, err := os.MkdirTemp("", "regenttest-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	logs := filepath.Join(directory, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		return 1, err
	}
	s, err := start(context.Background(), o, program, directory, logs)
	if err != nil {
		return 1, fmt.Errorf("cannot start regent: %w\n%s", err, s.tails())
	}
	stopped := false
	defer func() { // a test's panic, or its end of the goroutine
		if !stopped {
			_ = s.stop()
		}
	}()
	use(s)
	code = run()
	stopped = true
	if err = s.stop(); err != nil || code != 0 {
		err = errors.Join(err, errors.New(s.tails()))
	}
	return code, err
}

// buildContext ends a while before the test's deadline, so that a build that takes too long says so.
func buildContext(t testing.TB) context.Context {
	of, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return t.Context()
	}
	deadline, ok := of.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-buildReserve))
	t.Cleanup(cancel)
	return ctx
}

// buildReserve is for saying that there was no time.
const buildReserve = 10 * time.Second

// tails are the ends of all logs.
func (s *Server) tails() string {
	const lines = 40
	text := fmt.Sprintf("the last %d lines of each log:", lines)
	for _, p := range s.processes {
		if p.run != nil {
			text += fmt.Sprintf("\n---- %s (pid %d)\n%s", p.name, p.run.process.Pid, lastLines(p.Log(), lines))
		}
	}
	return text
}
