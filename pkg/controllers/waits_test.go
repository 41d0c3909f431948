package controllers

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatIsAwaitedAllTheWhileIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Waits[string]
		if w.Overdue("a", time.Second) {
			t.Error("overdue at once")
		}
		time.Sleep(time.Second)
		if !w.Overdue("a", time.Second) {
			t.Error("not overdue")
		}
		if w.Forget("a"); w.Overdue("a", time.Second) {
			t.Error("overdue though it had come")
		}
		if w.Forget("a"); len(w.since) > 0 {
			t.Error("it is remembered for ever")
		}
	})
}
