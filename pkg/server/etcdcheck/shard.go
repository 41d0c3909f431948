package etcdcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
)

// shardRecord identifies a shard, and says in which format it stores. The first replica writes it into etcd; all others
// compare theirs with it. Two shards on one prefix would overwrite each other's objects, and clients trust only one of
// two authorities.
type shardRecord struct {
	Shard string `json:"shard"`
	// CA is the SHA-256 of the authority's certificate, in PEM.
	CA string `json:"ca"`
	format.Record
}

// shardKey returns the record's key. It does not collide with the keys of objects, which are
// <prefix>/<group>/<resource>/...
func shardKey(prefix string) string { return prefix + "/.shard" }

// RecordKey returns the key of a shard's record, for whoever fills a prefix.
func RecordKey(prefix string) string { return shardKey(path.Join("/", prefix)) }

// LoadMark is in place of the record while a prefix is being filled.
const LoadMark = "a backup is being loaded"

// ErrOtherShard is a mismatch that trying again does not mend.
var ErrOtherShard = errors.New("this etcd prefix belongs to another shard or another certificate authority")

// Shard records the shard in etcd, or compares it with the recorded one.
type Shard struct {
	client    *clientv3.Client
	key       string
	shard     string
	directory string
	formats   format.Formats
	// authority is the one of which the record is. It changes when the authority is rolled.
	authority atomic.Pointer[pki.Bundle]
	// known is closed when the prefix is known to be this shard's.
	confirmation chan struct{}
	// stored is what the record says of the format, as it was last read.
	stored atomic.Pointer[format.Record]
	// fault is the error of the last attempt, nil before the first.
	fault atomic.Pointer[error]

	probe probeSecret
	// secret is the probes' secret, once Run has returned.
	secret []byte
}

// Config is what NewShard needs.
type Config struct {
	// Shard is the shard's name, Prefix begins all its keys, and Directory holds its authority.
	Shard, Prefix, Directory string
	// Secrets encrypts the probes' secret, as Secrets are encrypted.
	Secrets value.Transformer
	// Formats are those that this replica reads.
	Formats format.Formats
}

// NewShard returns a check of the record of a shard with an authority.
func NewShard(client *clientv3.Client, cfg Config, authority *pki.Bundle) *Shard {
	c := &Shard{
		client:       client,
		key:          shardKey(cfg.Prefix),
		shard:        cfg.Shard,
		directory:    cfg.Directory,
		formats:      cfg.Formats,
		confirmation: make(chan struct{}),
		probe:        probeSecret{client: client, key: secretKey(cfg.Prefix), encrypt: cfg.Secrets},
	}
	c.authority.Store(authority)
	return c
}

// Confirmation is closed when the prefix is known to be this shard's.
func (c *Shard) Confirmation() <-chan struct{} { return c.confirmation }

// Secret returns the probes' secret. It may be called once Run has returned nil.
func (c *Shard) Secret() []byte { return c.secret }

// EncryptAnew stores the probes' secret anew if it is not encrypted with the first of the keys in use.
func (c *Shard) EncryptAnew(ctx context.Context) error { return c.probe.encryptAnew(ctx) }

// Run tries until etcd has answered, and returns nil once the prefix is known to be this shard's, and in a format that
// this replica reads. Otherwise it returns an error that wraps ErrOtherShard or format.ErrUnreadable. It may be called
// once.
func (c *Shard) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	var told time.Time
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.try(ctx)
		if err == nil {
			close(c.confirmation)
			return nil
		}
		if errors.Is(err, ErrOtherShard) || errors.Is(err, format.ErrUnreadable) || ctx.Err() != nil {
			return err
		}
		c.fault.Store(&err)
		if errors.Is(err, errUnreadable) && (told.IsZero() || time.Since(told) >= reminder) {
			log.Error(err, "This replica is not ready, and stands for no election")
			told = time.Now()
		}
		log.V(2).Info("Cannot read the shard's record from etcd, trying again", "err", err, "pause", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (c *Shard) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := c.compare(ctx, c.authority.Load())
	if err != nil {
		return err
	}
	c.secret, err = c.probe.read(ctx)
	return err
}

// Follow compares an authority that is new to this replica with the record, which follows it if the recorded authority
// has named it as its successor. Nothing else ever changes the record: whoever has the files of another shard, or those
// from before the roll, is refused.
func (c *Shard) Follow(ctx context.Context, bundle *pki.Bundle) error {
	err := c.compare(ctx, bundle)
	if err == nil {
		c.authority.Store(bundle)
	}
	return err
}

// compare records the shard, or compares it with the recorded one.
func (c *Shard) compare(ctx context.Context, bundle *pki.Bundle) error {
	record := shardRecord{Shard: c.shard, CA: bundle.Identity(), Record: c.formats.New()}
	ours, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("cannot encode the shard's record: %w", err)
	}
	stored, revision, err := c.agree(ctx, c.key, ours)
	if err != nil {
		return err
	}
	theirs, err := c.read(stored)
	if err != nil {
		return err
	}
	same := theirs.Shard == record.Shard
	switch {
	case same && (theirs.CA == record.CA || bundle.Precedes(theirs.CA)):
		return nil
	case same && bundle.Succeeds(theirs.CA):
		return c.succeed(ctx, stored, revision, record.CA)
	}
	return c.mismatch(record, theirs)
}

// read returns what the record says, if this replica reads what is stored in its format. The format comes first: it
// decides what all else means.
func (c *Shard) read(stored []byte) (shardRecord, error) {
	if string(stored) == LoadMark {
		return shardRecord{}, fmt.Errorf("%w: a backup is being loaded below the prefix, or was not loaded to its end: wait for regent backup load, or delete all keys below the prefix and load it again", ErrOtherShard)
	}
	var of format.Record
	if err := json.Unmarshal(stored, &of); err != nil {
		return shardRecord{}, fmt.Errorf("%w: the record at %s is not readable: %w", ErrOtherShard, c.key, err)
	}
	if err := c.formats.Check(of); err != nil {
		return shardRecord{}, err
	}
	var record shardRecord
	if err := json.Unmarshal(stored, &record); err != nil {
		return shardRecord{}, fmt.Errorf("%w: the record at %s is not readable: %w", ErrOtherShard, c.key, err)
	}
	c.stored.Store(&of)
	return record, nil
}

// succeed writes authority into the record of the one that has named it as its successor.
func (c *Shard) succeed(ctx context.Context, stored []byte, revision int64, authority string) error {
	if err := c.change(ctx, stored, revision, map[string]any{"ca": authority}); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The shard's record names the new certificate authority now", "key", c.key)
	return nil
}

// change gives fields of the record other values. What else is in the record stays, also what only other versions know.
// revision is that at which it was read.
func (c *Shard) change(ctx context.Context, stored []byte, revision int64, values map[string]any) error {
	record := map[string]any{}
	if err := json.Unmarshal(stored, &record); err != nil {
		return fmt.Errorf("cannot decode the shard's record: %w", err)
	}
	maps.Copy(record, values)
	ours, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("cannot encode the shard's record: %w", err)
	}
	resp, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(c.key), "=", revision)).Then(clientv3.OpPut(c.key, string(ours))).Commit()
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	if !resp.Succeeded {
		return errors.New("another replica has changed the shard's record at the same time: try again")
	}
	return nil
}

// agree stores ours under key if the key is absent, and returns what the key then holds, and since which revision (0:
// ours). It reads first, because an etcd that is out of space refuses transactions that may write.
func (c *Shard) agree(ctx context.Context, key string, ours []byte) (stored []byte, revision int64, err error) {
	existing, err := c.client.Get(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("etcd does not answer: %w", err)
	}
	if len(existing.Kvs) > 0 {
		return existing.Kvs[0].Value, existing.Kvs[0].ModRevision, nil
	}
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(ours))).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return nil, 0, fmt.Errorf("etcd does not answer: %w", err)
	}
	if resp.Succeeded {
		return ours, 0, nil
	}
	there := resp.Responses[0].GetResponseRange().Kvs[0]
	return there.Value, there.ModRevision, nil
}

// mismatch says what to do about a record that is not ours.
func (c *Shard) mismatch(ours, theirs shardRecord) error {
	if theirs.Shard != ours.Shard {
		return fmt.Errorf("%w: it holds shard %q, this replica is of shard %q: give another --etcd-prefix or --shard-name=%s", ErrOtherShard, theirs.Shard, ours.Shard, theirs.Shard)
	}
	return fmt.Errorf("%w: replace %s by the files of a replica of this shard (its %s has another fingerprint, %.12s and not %.12s)",
		ErrOtherShard, filepath.Join(c.directory, "{"+pki.CACertFile+","+pki.CAKeyFile+","+pki.AdminCertFile+","+pki.AdminKeyFile+","+pki.RollFile+"}"), pki.CACertFile, ours.CA, theirs.CA)
}

// Name implements healthz.HealthChecker.
func (c *Shard) Name() string { return "shard" }

// Check implements healthz.HealthChecker.
func (c *Shard) Check(*http.Request) error {
	const notYet = "the shard's name and certificate authority are not compared with those in etcd yet"
	select {
	case <-c.confirmation:
		return nil
	default:
	}
	if fault := c.fault.Load(); fault != nil {
		return fmt.Errorf(notYet+": %w", *fault)
	}
	return errors.New(notYet)
}
