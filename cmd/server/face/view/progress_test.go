package view

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// screen is what a terminal of one line shows in the end, and has shown.
func screen(written string) (now string, before []string) {
	for part := range strings.SplitSeq(written, ClearLine) {
		now, before = part, append(before, part)
	}
	return now, before
}

func during(t *testing.T, takes time.Duration, width int) (terminal bytes.Buffer) {
	t.Helper()
	failed := errors.New("failed")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := while(t.Context(), &terminal, width, func() string { return "Waiting for somebody to lead" }, func(ctx context.Context) error {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			return failed
		})
		if !errors.Is(err, failed) || time.Since(began) != takes {
			t.Errorf("returned %v after %v, want what was done and no delay", err, time.Since(began))
		}
	})
	return terminal
}

func TestWhatIsQuickSaysNothing(t *testing.T) {
	if got := during(t, patience-time.Millisecond, 80); got.Len() != 0 {
		t.Errorf("written: %q", got.String())
	}
}

func TestALineSaysForHowLongAndIsErased(t *testing.T) {
	got := during(t, 4500*time.Millisecond, 80)
	now, before := screen(got.String())
	want := []string{"", "Waiting for somebody to lead... 2s", "Waiting for somebody to lead... 3s", "Waiting for somebody to lead... 4s", ""}
	if now != "" || strings.Join(before, "|") != strings.Join(want, "|") {
		t.Errorf("shown: %q", before)
	}
}

func TestTheLineIsNeverWrapped(t *testing.T) {
	for _, width := range []int{1, 12, 20} {
		got := during(t, time.Minute, width)
		_, before := screen(got.String())
		for _, line := range before {
			if len(line) >= width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}

func TestWithoutATerminalNothingIsSaid(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	called := false
	if err := While(t.Context(), write, "x", func(context.Context) error { called = true; return nil }); err != nil || !called {
		t.Errorf("%v, called: %v", err, called)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(read); err != nil || text.Len() != 0 {
		t.Errorf("%v, said %q", err, text.String())
	}
}
