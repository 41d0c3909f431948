package dev

import (
	"runtime"
	"syscall"
)

// endsWithParent has the system send SIGTERM to the process that attr starts when this one ends, however it ends. It is
// for programs that do not know the parent's pipe. The system sends it when the thread ends that has started the
// process: so the goroutine keeps its thread until over is called, which must be after the process has ended.
func endsWithParent(attr *syscall.SysProcAttr) (over func()) {
	runtime.LockOSThread()
	attr.Pdeathsig = syscall.SIGTERM
	return runtime.UnlockOSThread
}
