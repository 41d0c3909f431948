package pki

import (
	"crypto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Replicas on other machines have copies of what was there before there was this key, or nothing but a membership.
func TestReplicasDeriveTheSameKeyOfTokens(t *testing.T) {
	keyIn := func(directory string) crypto.PublicKey {
		t.Helper()
		key, err := EnsureServiceAccountKey(directory)
		if err != nil {
			t.Fatal(err)
		}
		return key.Public()
	}
	first := newDirectory(t)
	bundle := ensure(t, first)
	copied := newDirectory(t)
	if err := os.CopyFS(copied, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CAKeyFile, AdminKeyFile} {
		if err := os.Chmod(filepath.Join(copied, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := keyIn(first)
	if !samePublicKey(key, keyIn(copied)) {
		t.Error("two copies of a directory have different keys")
	}
	if samePublicKey(key, bundle.caKey.Public()) || samePublicKey(key, keyIn(withBundle(t))) {
		t.Error("the key is another one's, too")
	}
	// Once it is there it stays, whatever becomes of the one from which it was derived.
	if err := os.Remove(filepath.Join(first, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	if !samePublicKey(key, keyIn(first)) {
		t.Error("the key has changed with the authority's")
	}
	if err := os.Remove(filepath.Join(first, serviceAccountKeyFile)); err != nil {
		t.Fatal(err)
	}
	if samePublicKey(key, keyIn(first)) {
		t.Error("the admin's key and the authority's lead to the same")
	}

	membership, err := bundle.NewMembership(eu1, RootShard{Name: "root", URLs: []string{"https://r:1"}})
	if err != nil {
		t.Fatal(err)
	}
	var members []crypto.PublicKey
	for range 2 {
		directory := newDirectory(t)
		if err := Join(directory, membership); err != nil {
			t.Fatal(err)
		}
		members = append(members, keyIn(directory))
	}
	if !samePublicKey(members[0], members[1]) || samePublicKey(members[0], key) {
		t.Error("two replicas of a member have different keys, or those of the root shard")
	}
	if _, err := EnsureServiceAccountKey(newDirectory(t)); err == nil || !strings.Contains(err.Error(), "--service-account-signing-key-file") {
		t.Errorf("a directory without keys: %v", err)
	}
}

func withBundle(t *testing.T) string {
	t.Helper()
	directory := newDirectory(t)
	ensure(t, directory)
	return directory
}

func TestReplicasThatStartTogetherShareTheKeyOfTokens(t *testing.T) {
	directory := withBundle(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first crypto.PublicKey
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
	info, err := os.Stat(filepath.Join(directory, serviceAccountKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want the mode 0600", info, err)
	}
}

func TestAKeyOfTokensThatIsNoneIsRefused(t *testing.T) {
	for content, want := range map[string]string{"": "holds no private key", "no key": "holds no private key"} {
		directory := newDirectory(t)
		name := filepath.Join(directory, serviceAccountKeyFile)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureServiceAccountKey(directory); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want that it %s", content, err, want)
		}
	}
	directory := withBundle(t)
	if _, err := EnsureServiceAccountKey(directory); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(directory, serviceAccountKeyFile)
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureServiceAccountKey(directory); err == nil || !strings.Contains(err.Error(), "chmod 0600 "+name) {
		t.Errorf("a key that others may read: %v", err)
	}
}

// A directory in which no replica has started yet has no key of tokens. Its copies have derived one.
func TestACopyAfterARollHasTheKeyOfTokensFromBefore(t *testing.T) {
	directory, copied := newDirectory(t), newDirectory(t)
	ensure(t, directory)
	if err := Install(directory, copied); err != nil {
		t.Fatal(err)
	}
	before, err := EnsureServiceAccountKey(copied)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []Step{Begin, Switch, Finish} {
		if err := Roll(directory, filepath.Join(t.TempDir(), "admin.kubeconfig"), step); err != nil {
			t.Fatal(err)
		}
	}
	again := newDirectory(t)
	if err := Install(directory, again); err != nil {
		t.Fatal(err)
	}
	after, err := EnsureServiceAccountKey(again)
	if err != nil {
		t.Fatal(err)
	}
	if !samePublicKey(before.Public(), after.Public()) {
		t.Error("a replica with a copy of the directory signs with another key than before the roll")
	}
}
