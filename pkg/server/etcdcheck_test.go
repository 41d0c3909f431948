package server

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestALostEtcdIsToldOnceAMinuteAndItsReturnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), log))
		began := time.Now()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tellOfEtcd(ctx, func(context.Context) error {
				if away := time.Since(began); away > time.Minute && away < 4*time.Minute {
					return errors.New("gone")
				}
				return nil
			})
		}()
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		if lost, back := strings.Count(out.String(), "gone"), strings.Count(out.String(), "answers again"); lost != 3 || back != 1 {
			t.Errorf("lost told %d times, want 3; its return %d times, want 1:\n%s", lost, back, &out)
		}
	})
}
