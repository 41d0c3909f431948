package pki

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReplicasThatStartTogetherShareTheKeyOfTokens(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first any
	for range 16 {
		wg.Go(func() {
			key, err := EnsureServiceAccountKey(directory)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = key.Public()
			}
			if !samePublicKey(first, key.Public()) {
				t.Error("two replicas got different keys")
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(filepath.Join(directory, ServiceAccountKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want the mode 0600", info, err)
	}
}

func TestAKeyOfTokensThatIsNoneIsRefused(t *testing.T) {
	for content, want := range map[string]string{"": "holds no private key", "no key": "holds no private key"} {
		directory := newDirectory(t)
		name := filepath.Join(directory, ServiceAccountKeyFile)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureServiceAccountKey(directory); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want that it %s", content, err, want)
		}
	}
	directory := newDirectory(t)
	if _, err := EnsureServiceAccountKey(directory); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(directory, ServiceAccountKeyFile)
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureServiceAccountKey(directory); err == nil || !strings.Contains(err.Error(), "chmod 0600 "+name) {
		t.Errorf("a key that others may read: %v", err)
	}
}
