package etcdcheck

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestTheLogSaysWhyEtcdDoesNotAnswer(t *testing.T) {
	etcd := etcdtest.Start(t)
	strangers := t.TempDir()
	if _, err := pki.Ensure(strangers); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*storagebackend.TransportConfig)
		want   string
	}{
		"nobody listens": {func(way *storagebackend.TransportConfig) {
			way.ServerList = []string{"https://127.0.0.1:1"}
		}, "connection refused"},
		"an authority that is not etcd's": {func(way *storagebackend.TransportConfig) { way.TrustedCAFile = filepath.Join(strangers, "ca.crt") }, "certificate signed by unknown authority"},
		"no certificate":                  {func(way *storagebackend.TransportConfig) { way.CertFile, way.KeyFile = "", "" }, "certificate"},
		"a stranger's certificate": {func(way *storagebackend.TransportConfig) {
			way.CertFile, way.KeyFile = filepath.Join(strangers, "admin.crt"), filepath.Join(strangers, "admin.key")
		}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way := etcd
			tc.change(&way)
			check := NewAnswers(etcdtest.Client(t, way), "/registry")
			err := check.observe(t.Context())
			for range 9 { // on a busy machine it may still be connecting
				if err == nil || strings.Contains(err.Error(), tc.want) {
					break
				}
				err = check.observe(t.Context())
			}
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a deadline that was missed, and %q", err, tc.want)
			}
			if check.answers.Load() {
				t.Error("etcd is taken to answer")
			}
		})
	}
	t.Run("nothing is wrong", func(t *testing.T) {
		check := NewAnswers(etcdtest.Client(t, etcd), "/registry")
		if err := check.observe(t.Context()); err != nil || !check.answers.Load() {
			t.Errorf("etcd answers, and got %v", err)
		}
	})
}

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
