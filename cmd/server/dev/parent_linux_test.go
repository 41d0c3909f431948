package dev

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// embedder is a program that knows nothing of a pipe, and ends when it gets SIGTERM.
const embedder = `#!/bin/sh
trap 'echo > "$0.ended"; exit 0' TERM
echo $$ > "$0.pid.new" && mv "$0.pid.new" "$0.pid"
while :; do sleep 0.1; done
`

func TestAProgramEndsWithADevThatIsKilled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "embedder")
	if err := os.WriteFile(program, []byte(embedder), 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, "-test.run=^$")
	parent.Env, parent.Stderr = append(os.Environ(), parentOf+"="+program), os.Stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(awaitFile(t, program+".pid"))))
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // one that has not ended runs in a group of its own
		if t.Failed() {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}()
	awaitFile(t, program+".ended")
}

// awaitFile waits until a file is there, and returns what it says.
func awaitFile(t *testing.T, name string) []byte {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if content, err := os.ReadFile(name); err == nil {
			return content
		}
	}
	t.Errorf("there is no %s", filepath.Base(name))
	return nil
}
