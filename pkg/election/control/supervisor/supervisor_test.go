package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFailureIsToldBeforeTheOthersHaveJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, hangs, returns := errors.New("broken"), make(chan struct{}), make(chan struct{})
		told := make(chan error, 2)
		_, ended, _ := supervise(t, supervisor.Config{Policies: stepDown, OnEvent: on(supervisor.TermFailed, func(e supervisor.Event) { told <- e.Err })},
			descriptor("hangs", func(context.Context) error { close(hangs); <-returns; return nil }),
			descriptor("breaks", func(context.Context) error { <-hangs; return broken }), // else the other may never start
			descriptor("breaks-later", func(ctx context.Context) error { <-ctx.Done(); panic("too") }))
		expectRunning(t, ended)
		failure, ok := errors.AsType[*supervisor.ControllerError](<-told)
		if !ok || failure.Controller != "breaks" || !errors.Is(failure, broken) {
			t.Errorf("told %v", failure)
		}
		close(returns)
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("Run returned %v", err)
		}
		if len(told) != 0 {
			t.Errorf("told again: %v", <-told)
		}
	})
}
