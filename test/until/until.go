// Package until has tests wait for what must come about.
package until

import (
	"testing"
	"time"
)

// Patience is how long something may take on a slow machine.
const Patience = 2 * time.Minute

// So waits until what is so, and returns how long that took. It ends the test if it is not so within Patience. It may
// miss what is so for a moment only.
func So(t testing.TB, what string, so func() bool) time.Duration {
	t.Helper()
	return Within(t, Patience, what, so)
}

// Within is So with another bound.
func Within(t testing.TB, bound time.Duration, what string, so func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; {
		is, took := so(), time.Since(began)
		switch {
		case is:
			return took
		case took > bound:
			t.Fatalf("not within %v: %s", bound, what)
		}
		// What takes long is asked for less often: the answer may be dear.
		time.Sleep(min(max(took/10, 5*time.Millisecond), 250*time.Millisecond))
	}
}
