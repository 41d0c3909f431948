package regenttest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// endsWithParent has the system kill the process that attr starts when this one ends, however it ends: a process that
// is paused, too, which hears nothing from the parent's pipe. The system does so when the thread ends that has started
// the process: so the goroutine keeps its thread until over is called, which must be after the process has ended.
func endsWithParent(attr *syscall.SysProcAttr) (over func()) {
	runtime.LockOSThread()
	attr.Pdeathsig = syscall.SIGKILL
	return runtime.UnlockOSThread
}

// isPaused reports whether all threads of a process are stopped. After SIGSTOP one of them has to run first, which
// takes a while on a busy machine, and the others go on until then.
func isPaused(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// the state comes after the name, which is in parentheses
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
