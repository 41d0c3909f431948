package server

import (
	"context"
	"errors"
	"testing"
	"time"
)

// eventually tries until do succeeds. It ends the test with the last error if that takes a minute: rights that were
// given a moment ago, for one, may not have reached the replica.
func eventually(t testing.TB, what string, do func(context.Context) error) {
	t.Helper()
	again, over := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for {
		err := do(t.Context())
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-over:
			t.Fatalf("in vain for a minute: %s: %v", what, err)
		}
	}
}

// until waits until something is so, as eventually does.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	eventually(t, what, func(context.Context) error {
		if !so() {
			return errNotSo
		}
		return nil
	})
}

var errNotSo = errors.New("it is not so")
