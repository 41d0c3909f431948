package etcdcheck

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/encryption"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
	"github.com/regent-project/regent/test/until"
)

// Providers of an EncryptionConfiguration.
var (
	keyOne, keyTwo = keyProvider("aesgcm", "one"), keyProvider("aescbc", "two")
	unencrypted    = `{"identity": {}}`
)

func keyProvider(kind, name string) string {
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
	return fmt.Sprintf(`{%q: {"keys": [{"name": %q, "secret": %q}]}}`, kind, name, key)
}

// secretsBy returns what encrypts Secrets with those providers, as --encryption-provider-config has it.
func secretsBy(t *testing.T, providers ...string) value.Transformer {
	t.Helper()
	if len(providers) == 0 {
		return identity.NewEncryptCheckTransformer()
	}
	content := `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": [{"resources": ["secrets"], "providers": [` + strings.Join(providers, ", ") + `]}]}`
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := encryption.Load(t.Context(), file, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	return keys.TransformerForResource(corev1.Resource("secrets"))
}

// A shard's replicas are restarted one by one with another configuration, each step of a way that operators go. All of
// them have the same secret throughout, those that were not restarted too, and what is in etcd is encrypted as Secrets
// are.
func TestTheProbesSecretIsEncryptedAsSecretsAre(t *testing.T) {
	client := etcdtest.Client(t, etcdtest.Start(t))
	key := secretKey("/registry")
	var first []byte
	for i, step := range []struct {
		name      string
		providers []string
		stored    string // the beginning of what is in etcd; "": as it is
	}{
		{"without a configuration", nil, ""},
		{"a key is announced", []string{unencrypted, keyOne}, ""},
		{"it writes", []string{keyOne, unencrypted}, "k8s:enc:aesgcm:v1:one:"},
		{"one that was late", []string{unencrypted, keyOne}, ""},
		{"it writes again", []string{keyOne, unencrypted}, "k8s:enc:aesgcm:v1:one:"},
		{"nothing is unencrypted any more", []string{keyOne}, "k8s:enc:aesgcm:v1:one:"},
		{"a new key is announced", []string{keyOne, keyTwo}, "k8s:enc:aesgcm:v1:one:"},
		{"the new key writes", []string{keyTwo, keyOne}, "k8s:enc:aescbc:v1:two:"},
		{"the old key is gone", []string{keyTwo}, "k8s:enc:aescbc:v1:two:"},
		{"back to no encryption", []string{unencrypted, keyTwo}, ""},
		{"a version that did not encrypt comes before keys alone", []string{keyOne}, "k8s:enc:aesgcm:v1:one:"},
	} {
		secret, err := (&probeSecret{client: client, key: key, encrypt: secretsBy(t, step.providers...)}).read(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if first == nil {
			first = secret
		}
		if i == 0 && len(first) != secretLength || !bytes.Equal(secret, first) {
			t.Errorf("%s: the secret is another, of %d bytes", step.name, len(secret))
		}
		stored := storedAt(t, client, key)
		if encrypted := step.stored != ""; encrypted == bytes.Contains(stored, first) || !strings.HasPrefix(string(stored), step.stored) {
			t.Errorf("%s: etcd has %.30q, want %q", step.name, stored, step.stored)
		}
	}
}

func storedAt(t *testing.T, client *clientv3.Client, key string) []byte {
	t.Helper()
	resp, err := client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, resp, err)
	}
	return resp.Kvs[0].Value
}

func TestReplicasThatStartTogetherHaveOneSecret(t *testing.T) {
	client := etcdtest.Client(t, etcdtest.Start(t))
	secrets := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range secrets {
		providers := []string{keyOne, keyTwo}
		if i%2 == 1 {
			providers = []string{keyTwo, keyOne}
		}
		p := &probeSecret{client: client, key: secretKey("/registry"), encrypt: secretsBy(t, providers...)}
		all.Go(func() {
			var err error
			if secrets[i], err = p.read(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, secret := range secrets {
		if len(secret) != secretLength || !bytes.Equal(secret, secrets[0]) {
			t.Errorf("replica %d has another secret than the first", i)
		}
	}
}

// A replica without the others' key must not take what it cannot read for the secret: it is not ready, and says why.
func TestAReplicaWithoutTheKeyIsNotReadyAndSaysWhy(t *testing.T) {
	client := etcdtest.Client(t, etcdtest.Start(t))
	cfg := Config{Shard: "root", Prefix: "/registry", Directory: filepath.Join(t.TempDir(), "pki"), Secrets: secretsBy(t, keyOne), Formats: format.Ours("this")}
	bundle, err := pki.Ensure(cfg.Directory)
	if err != nil {
		t.Fatal(err)
	}
	good := NewShard(client, cfg, bundle)
	if err := good.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := storedAt(t, client, secretKey(cfg.Prefix))
	for name, providers := range map[string][]string{"no configuration": nil, "another key": {keyTwo}, "another key, or none": {keyTwo, unencrypted}} {
		cfg.Secrets = secretsBy(t, providers...)
		check := NewShard(client, cfg, bundle)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- check.Run(ctx) }()
		until.So(t, name+": it is said to be unready for its keys", func() bool {
			err := check.Check(nil)
			return err != nil && strings.Contains(err.Error(), "--encryption-provider-config") && strings.Contains(err.Error(), secretKey(cfg.Prefix))
		})
		cancel()
		if err := <-ended; err == nil || errors.Is(err, ErrOtherShard) {
			t.Errorf("%s: Run returned %v, want it to try on", name, err)
		}
		if !bytes.Equal(storedAt(t, client, secretKey(cfg.Prefix)), stored) {
			t.Errorf("%s: it has written another secret", name)
		}
	}
}
