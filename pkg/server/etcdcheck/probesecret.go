package etcdcheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
)

// secretKey returns the etcd key of the probe secret. A replica proves to other replicas' probes that it belongs to the
// shard by knowing this secret: whoever knows it can read the shard's etcd.
func secretKey(prefix string) string { return prefix + "/.probe-secret" }

// secretLength is in bytes.
const secretLength = 32

// encryptedPrefix begins the values that upstream's encryption providers have written.
var encryptedPrefix = []byte("k8s:enc:")

// errUnreadable says that this replica has no key for the stored secret.
var errUnreadable = errors.New("the probes' secret in etcd cannot be decrypted")

// probeSecret reads and writes the probe secret in etcd. It is encrypted like the shard's Secrets.
type probeSecret struct {
	client  *clientv3.Client
	key     string
	encrypt value.Transformer
}

// read returns the secret, and creates it if there is none. If the configuration would encrypt a new Secret with
// another provider or key, read stores the secret anew. So an old key can be removed once all replicas have been
// restarted.
func (p *probeSecret) read(ctx context.Context) ([]byte, error) {
	resp, err := p.client.Get(ctx, p.key)
	if err != nil {
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return p.create(ctx)
	}
	kv := resp.Kvs[0]
	secret, stale, err := p.decrypt(ctx, kv.Value)
	if err != nil {
		return nil, err
	}
	if stale {
		if _, err := p.write(ctx, secret, kv.ModRevision); err != nil {
			klog.FromContext(ctx).Error(err, "The probes' secret stays encrypted with an old key: restart this replica when etcd takes writes, before you remove that key", "key", p.key)
		}
	}
	return secret, nil
}

// encryptAnew stores the secret anew if it is not encrypted with the first of the keys in use. Another replica may do
// so at the same time.
func (p *probeSecret) encryptAnew(ctx context.Context) error {
	resp, err := p.client.Get(ctx, p.key)
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return nil // whoever makes it uses the keys of that moment
	}
	secret, stale, err := p.decrypt(ctx, resp.Kvs[0].Value)
	if err != nil || !stale {
		return err
	}
	_, err = p.write(ctx, secret, resp.Kvs[0].ModRevision)
	return err
}

// decrypt returns the secret, and whether it must be stored anew. A secret without encryption is always accepted, even
// if the configuration has no provider for unencrypted values: shards that were upgraded may have one.
func (p *probeSecret) decrypt(ctx context.Context, stored []byte) (secret []byte, stale bool, err error) {
	secret, stale, err = p.encrypt.TransformFromStorage(ctx, stored, value.DefaultContext(p.key))
	if err == nil {
		return secret, stale, nil
	}
	if !bytes.HasPrefix(stored, encryptedPrefix) {
		return stored, true, nil
	}
	return nil, false, fmt.Errorf("%w: give this replica the --encryption-provider-config of the others; if the key is lost, delete %s in etcd and restart all replicas: %w", errUnreadable, p.key, err)
}

// create makes the secret, or returns the one that another replica has made at the same time.
func (p *probeSecret) create(ctx context.Context) ([]byte, error) {
	secret := make([]byte, secretLength)
	_, _ = rand.Read(secret) // never fails
	written, err := p.write(ctx, secret, 0)
	if err != nil {
		return nil, err
	}
	if !written {
		return p.read(ctx)
	}
	return secret, nil
}

// write stores the secret if the key is still at the given revision (0: absent), and reports whether it did.
func (p *probeSecret) write(ctx context.Context, secret []byte, revision int64) (bool, error) {
	encrypted, err := p.encrypt.TransformToStorage(ctx, secret, value.DefaultContext(p.key))
	if err != nil {
		return false, fmt.Errorf("cannot encrypt the probes' secret: %w", err)
	}
	resp, err := p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(p.key), "=", revision)).
		Then(clientv3.OpPut(p.key, string(encrypted))).
		Commit()
	if err != nil {
		return false, fmt.Errorf("cannot write the probes' secret to etcd: %w", err)
	}
	return resp.Succeeded, nil
}
