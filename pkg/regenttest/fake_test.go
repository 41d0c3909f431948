package regenttest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fake is a test that may fail.
type fake struct {
	testing.TB
	fatal    string   // with which it was ended
	said     []string // errors and log lines
	failed   bool
	cleanups []func()
}

// fails runs a test that is expected to fail, with its cleanups, and returns what became of it.
func fails(t *testing.T, test func(t testing.TB)) *fake {
	t.Helper()
	f := &fake{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for _, clean := range slices.Backward(f.cleanups) {
				clean()
			}
		}()
		defer func() {
			if with := recover(); with != nil { // as package testing does: it cleans up, and panics again
				f.Errorf("panic: %v", with)
			}
		}()
		test(f)
	}()
	<-ended
	if !f.failed {
		t.Errorf("the test has not failed: %q", f.said)
	}
	return f
}

func (f *fake) Helper()           {}
func (f *fake) Failed() bool      { return f.failed }
func (f *fake) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }

func (f *fake) Fatalf(format string, args ...any) {
	f.failed, f.fatal = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fake) Errorf(format string, args ...any) {
	f.failed = true
	f.Logf(format, args...)
}

func (f *fake) Logf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *fake) has(text string) bool { return strings.Contains(strings.Join(f.said, "\n"), text) }
