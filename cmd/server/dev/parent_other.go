//go:build !linux

package dev

import "syscall"

// endsWithParent does nothing: this system sends no signal when a parent ends. A program that does not know the
// parent's pipe outlives a `regent dev` that is killed.
func endsWithParent(*syscall.SysProcAttr) (over func()) { return func() {} }
