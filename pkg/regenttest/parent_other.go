//go:build !linux

package regenttest

import "syscall"

// endsWithParent does nothing: this system sends no signal when a parent ends. The parent's pipe tells a process that
// runs, and one that is paused outlives a test that is killed.
func endsWithParent(*syscall.SysProcAttr) (over func()) { return func() {} }

// isPaused does not know, and believes it.
func isPaused(int) bool { return true }
