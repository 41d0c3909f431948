package encryption

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kms "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v2"

	"github.com/regent-project/regent/test/until"
)

// plugin returns a provider whose keys are in a KMS, and how to start the plugin.
func plugin(t *testing.T, name string) (provider string, start func() *kms.Base64Plugin) {
	socket := filepath.Join(t.TempDir(), name+".sock")
	return fmt.Sprintf(`{"kms": {"apiVersion": "v2", "name": %q, "endpoint": "unix://%s", "timeout": "2s"}}`, name, socket),
		func() *kms.Base64Plugin { return kms.NewBase64Plugin(t, socket) }
}

// A KMS is exchanged for another one. A plugin that does not work is not put into use. TestMain finds what the old ones
// leave behind.
func TestAKMSIsExchangedWhenItsSuccessorWorks(t *testing.T) {
	one, startOne := plugin(t, "one")
	two, startTwo := plugin(t, "two")
	startOne()
	f := newFile(t, one)
	k := f.load()
	k.times = times{look: 10 * time.Millisecond, patience: 50 * time.Millisecond, retry: 50 * time.Millisecond}
	secrets := k.TransformerForResource(corev1.Resource("secrets"))
	run(t, k, nothing)

	var stored []byte
	var err error
	until.So(t, "the plugin is in use", func() bool {
		stored, err = secrets.TransformToStorage(t.Context(), []byte("hush"), of)
		return err == nil
	})
	if !strings.HasPrefix(string(stored), "k8s:enc:kms:v2:one:") {
		t.Fatalf("%.40q", stored)
	}
	f.have(two, one)
	until.So(t, "the fault is told", func() bool { return k.Fault() != nil })
	if again, err := secrets.TransformToStorage(t.Context(), []byte("hush"), of); err != nil || !strings.HasPrefix(string(again), "k8s:enc:kms:v2:one:") {
		t.Errorf("with a plugin that does not run: %.40q, %v", again, err)
	}
	startTwo()
	until.So(t, "the plugin that runs now is in use", func() bool { return k.Fault() == nil })
	if again, err := secrets.TransformToStorage(t.Context(), []byte("hush"), of); err != nil || !strings.HasPrefix(string(again), "k8s:enc:kms:v2:two:") {
		t.Errorf("%.40q, %v", again, err)
	}
	if plain, stale, err := secrets.TransformFromStorage(t.Context(), stored, of); err != nil || string(plain) != "hush" || !stale {
		t.Errorf("%q, stale %t, %v", plain, stale, err)
	}
}
