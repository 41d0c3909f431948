package until_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/test/until"
)

// fatal is a test that ends at its first fault.
type fatal struct {
	testing.TB
	faults int
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(string, ...any) {
	f.faults++
	panic(f)
}

func TestATestWaitsNoLongerThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asks := time.Now(), 0
		took := until.So(t, "a second has passed", func() bool {
			asks++
			return time.Since(began) >= time.Second
		})
		if took < time.Second || took > time.Second+100*time.Millisecond || asks > 100 {
			t.Errorf("it took %v, and was asked for %d times", took, asks)
		}
	})
}

func TestWhatDoesNotComeAboutEndsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, f := time.Now(), &fatal{TB: t}
		func() {
			defer func() { _ = recover() }()
			until.Within(f, time.Second, "never", func() bool { return false })
		}()
		if took := time.Since(began); f.faults != 1 || took < time.Second || took > 2*time.Second {
			t.Errorf("%d faults after %v", f.faults, took)
		}
	})
}
