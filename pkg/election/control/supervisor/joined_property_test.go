package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// I1 in its small form: whatever the controllers of a term do, nothing of theirs runs once Run has returned.
func TestI1NothingRunsOnceRunHasReturned(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, failures := 0, 0
			n := rapid.IntRange(1, 6).Draw(rt, "controllers")
			var set []control.Descriptor[deps]
			for i := range n {
				lasts := time.Duration(rapid.IntRange(1, 100).Draw(rt, "lasts")) * time.Second
				drains := time.Duration(rapid.IntRange(0, 20).Draw(rt, "drains")) * time.Second
				end := rapid.SampledFrom([]string{"on cancel", "on cancel", "error", "panic", "early"}).Draw(rt, "end")
				set = append(set, descriptor(fmt.Sprintf("c%d", i), func(ctx context.Context) error {
					mu.Lock()
					running++
					mu.Unlock()
					defer func() {
						mu.Lock()
						running--
						mu.Unlock()
					}()
					if end != "on cancel" {
						select {
						case <-time.After(lasts):
							mu.Lock()
							failures++
							mu.Unlock()
							if end == "panic" {
								panic("boom")
							}
							if end == "error" {
								return errors.New("boom")
							}
							return nil
						case <-ctx.Done():
						}
					}
					<-ctx.Done()
					time.Sleep(drains)
					return ctx.Err()
				}))
			}
			cancel, ended, _ := supervise(t, supervisor.Config{DrainTimeout: 10 * time.Second, Policies: stepDown}, set...)
			stop := time.AfterFunc(time.Duration(rapid.IntRange(0, 120).Draw(rt, "cancelled after"))*time.Second+time.Millisecond, cancel)
			defer stop.Stop()
			err := <-ended
			mu.Lock()
			defer mu.Unlock()
			if running != 0 {
				rt.Fatalf("%d controllers run on", running)
			}
			if (err != nil) != (failures > 0) {
				rt.Fatalf("%d failures, Run returned %v", failures, err)
			}
		})
	})
}
