package encryption

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage/value"
)

func TestMain(m *testing.M) {
	// Started by klog's init function, for the life of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func provider(name string) string {
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name[:1], 32)))
	return fmt.Sprintf(`{"aesgcm": {"keys": [{"name": %q, "secret": %q}]}}`, name, key)
}

// file is an EncryptionConfiguration that a test changes.
type file struct {
	t    *testing.T
	name string
}

func newFile(t *testing.T, providers ...string) *file {
	f := &file{t, filepath.Join(t.TempDir(), "encryption.yaml")}
	f.have(providers...)
	return f
}

func (f *file) have(providers ...string) {
	f.write(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": [{"resources": ["secrets"], "providers": [` + strings.Join(providers, ", ") + `]}]}`)
}

func (f *file) write(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.name+".new", []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.name+".new", f.name); err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) load() *Keys {
	f.t.Helper()
	k, err := Load(f.t.Context(), f.name, "test")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(k.Close)
	return k
}

// run runs k until the test ends, in the test's bubble.
func run(t *testing.T, k *Keys, changed func(context.Context) error) {
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		k.Run(ctx, changed)
	}()
	t.Cleanup(func() {
		cancel()
		<-joined
	})
}

var of = value.DefaultContext("/registry/secrets/x")

func nothing(context.Context) error { return nil }

// Each step of a rotation takes effect by itself, what was stored before can be read, and is known to be stale when it
// must be rewritten.
func TestAKeyIsRotatedInFourStepsWithoutARestart(t *testing.T) {
	f := newFile(t, provider("old"))
	k := f.load()
	secrets := k.TransformerForResource(corev1.Resource("secrets"))
	synctest.Test(t, func(t *testing.T) {
		run(t, k, nothing)
		stored, err := secrets.TransformToStorage(t.Context(), []byte("hush"), of)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name      string
			providers []string
			writes    string
			stale     bool // what was written before the step
			rewrite   bool
		}{
			{"the new key can be read", []string{provider("old"), provider("new")}, "old", false, false},
			{"the new key writes", []string{provider("new"), provider("old")}, "new", true, true},
			{"the old key is gone", []string{provider("new")}, "new", false, false},
		} {
			f.have(step.providers...)
			time.Sleep(5 * defaultTimes.look / 2)
			plain, stale, err := secrets.TransformFromStorage(t.Context(), stored, of)
			if err != nil || string(plain) != "hush" || stale != step.stale {
				t.Errorf("%s: read %q, stale %t, %v", step.name, plain, stale, err)
			}
			written, err := secrets.TransformToStorage(t.Context(), []byte("hush"), of)
			if err != nil || !strings.HasPrefix(string(written), "k8s:enc:aesgcm:v1:"+step.writes+":") {
				t.Errorf("%s: written %.40q, %v", step.name, written, err)
			}
			if step.rewrite {
				stored = written
			}
		}
	})
}

// A file that cannot be used changes nothing but the check and the metric, which tell why, until it is corrected.
func TestABadFileKeepsTheKeysAndIsTold(t *testing.T) {
	for name, spoil := range map[string]func(*file){
		"no configuration": func(f *file) { f.write("hello") },
		"empty":            func(f *file) { f.write("") },
		"a bad key":        func(f *file) { f.have(`{"aesgcm": {"keys": [{"name": "x", "secret": "short"}]}}`) },
		"absent": func(f *file) {
			if err := os.Remove(f.name); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t, provider("old"))
			k := f.load()
			secrets := k.TransformerForResource(corev1.Resource("secrets"))
			synctest.Test(t, func(t *testing.T) {
				run(t, k, nothing)
				check := func(status int) {
					t.Helper()
					answer := httptest.NewRecorder()
					k.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz/encryption-config", nil))
					if answer.Code != status || status != http.StatusOK && !strings.Contains(answer.Body.String(), "--encryption-provider-config") {
						t.Errorf("the check answers %d %s, want %d", answer.Code, answer.Body, status)
					}
				}
				check(http.StatusOK)
				spoil(f)
				time.Sleep(5 * defaultTimes.look / 2)
				check(http.StatusInternalServerError)
				if written, err := secrets.TransformToStorage(t.Context(), []byte("x"), of); err != nil || !strings.Contains(string(written[:30]), ":old:") {
					t.Errorf("written %.40q, %v", written, err)
				}
				f.have(provider("new"))
				time.Sleep(5 * defaultTimes.look / 2)
				check(http.StatusOK)
				if written, err := secrets.TransformToStorage(t.Context(), []byte("x"), of); err != nil || !strings.Contains(string(written[:30]), ":new:") {
					t.Errorf("written %.40q, %v", written, err)
				}
			})
		})
	}
}

// What follows a change is tried until it succeeds, and only after a change.
func TestWhatFollowsAChangeIsTriedUntilItSucceeds(t *testing.T) {
	f := newFile(t, provider("old"))
	k := f.load()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		run(t, k, func(context.Context) error {
			if calls.Add(1) < 3 {
				return errors.New("etcd is away")
			}
			return nil
		})
		time.Sleep(3 * defaultTimes.look)
		if n := calls.Load(); n != 0 {
			t.Errorf("%d calls without a change", n)
		}
		f.have(provider("new"), provider("old"))
		time.Sleep(10 * defaultTimes.look)
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

func TestAFileThatCannotBeUsedIsRefusedAtTheStart(t *testing.T) {
	f := newFile(t)
	if k, err := Load(t.Context(), f.name, "test"); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config") {
		t.Errorf("%v, %v", k, err)
	}
}
