package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/regent-project/regent/pkg/clusters"
)

// Stored is an object of a logical cluster as it is in etcd.
type Stored struct {
	// Key is its place in the logical cluster: see bundle.Object.
	Key string
	// Revision is that of etcd at which it was changed last.
	Revision int64
	// JSON is the object, without its resource version. Nil: what is stored is none, and Fault says why.
	JSON  []byte
	Fault error
	// Encrypted: it is encrypted in etcd.
	Encrypted bool
}

// ErrCompacted is of a read at a revision that etcd has no more, or never had.
var ErrCompacted = errors.New("etcd does not have the revision any more")

// fewKeys and manyKeys are how many keys are read at once: few, until it is known how large values are.
const fewKeys, manyKeys = 4, 500

// storedResource is how a resource's objects are in etcd.
type storedResource struct {
	prefix      string // of the keys, behind the shard's own
	transformer value.Transformer
	// asJSON turns what is stored, decrypted, into JSON.
	asJSON func(data []byte) ([]byte, error)
	codec  runtime.Codec // of what is stored; it decodes JSON, too
}

// name begins the keys of its objects as others see them.
func (r *storedResource) name() string { return strings.TrimPrefix(r.prefix, "/") + "/" }

// read returns what is stored at a key.
func (r *storedResource) read(ctx context.Context, kv *mvccpb.KeyValue) (Stored, error) {
	s := Stored{Key: string(kv.Key), Revision: kv.ModRevision, Encrypted: bytes.HasPrefix(kv.Value, []byte("k8s:enc:"))}
	data, _, err := r.transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err == nil {
		s.JSON, err = r.asJSON(data)
	}
	if s.Fault = err; ctx.Err() != nil { // a plugin that encrypts may have been asked
		return s, fmt.Errorf("read %s: %w", kv.Key, ctx.Err())
	}
	return s, nil
}

// Now is where etcd is in its history.
type Now struct {
	Revision int64
	// Etcd names the etcd. Raft is its term, which never falls: another etcd, or a lower term, is one that was
	// restored.
	Etcd, Raft uint64
}

// Now returns where etcd is now, or was while it was asked.
func (c *Client) Now(ctx context.Context) (Now, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	answer, err := c.calls.kv.Get(ctx, c.config.Prefix+"/health", clientv3.WithKeysOnly())
	if err != nil {
		return Now{}, fmt.Errorf("ask etcd for its revision: %w", err)
	}
	return Now{answer.Header.Revision, answer.Header.ClusterId, answer.Header.RaftTerm}, nil
}

// Revision returns the revision of Now.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	now, err := c.Now(ctx)
	return now.Revision, err
}

// ReadPage calls visit with the objects of a logical cluster as they were at a revision of etcd, in the order of their
// keys, from behind a key on (empty: all), until they have so many bytes, as JSON, or more. It returns whether there
// are more. Neither caches nor other requests wait for it. An error wraps ErrCompacted if etcd has the revision no
// more: it keeps those of the last five minutes at least.
func (c *Client) ReadPage(ctx context.Context, cluster logicalcluster.Name, revision int64, after string, size int, visit func(Stored) error) (more bool, err error) {
	for _, r := range c.storedResources() {
		prefix, err := clusters.StorageKey(r.prefix, r.prefix, cluster)
		if err != nil {
			return false, err
		}
		if more, err = c.readBehind(ctx, r, c.config.Prefix+prefix+"/", revision, after, &size, visit); err != nil || more {
			return more, err
		}
	}
	return false, nil
}

// readBehind is ReadPage of one resource, whose keys begin with a prefix in etcd.
func (c *Client) readBehind(ctx context.Context, r *storedResource, prefix string, revision int64, after string, size *int, visit func(Stored) error) (more bool, err error) {
	from := prefix
	switch {
	case strings.HasPrefix(after, r.name()):
		from = prefix + strings.TrimPrefix(after, r.name()) + "\x00"
	case after > r.name():
		return false, nil
	}
	return c.readPageOf(ctx, r, prefix, from, revision, size, func(s Stored) error {
		s.Key = r.name() + strings.TrimPrefix(s.Key, prefix)
		return visit(s)
	})
}

// readPageOf reads the objects of one resource, and reduces size. Their keys are those of etcd.
func (c *Client) readPageOf(ctx context.Context, r *storedResource, prefix, from string, revision int64, size *int, visit func(Stored) error) (more bool, err error) {
	for limit := fewKeys; ; {
		answer, err := c.readKeys(ctx, from, clientv3.GetPrefixRangeEnd(prefix), revision, limit)
		if err != nil {
			return false, err
		}
		before := *size
		for _, kv := range answer.Kvs {
			if *size <= 0 {
				return true, nil
			}
			s, err := r.read(ctx, kv)
			if err != nil {
				return false, err
			}
			*size -= max(len(kv.Value), len(s.JSON)) // JSON may have six times the bytes
			if err := visit(s); err != nil {
				return false, err
			}
		}
		if !answer.More {
			return false, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		each := max(1, (before-*size)/len(answer.Kvs))
		limit = min(max(*size/each, 1), 4*limit, manyKeys)
	}
}

func (c *Client) readKeys(ctx context.Context, from, to string, revision int64, limit int) (*clientv3.GetResponse, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	answer, err := c.calls.kv.Get(ctx, from, clientv3.WithRange(to), clientv3.WithRev(revision), clientv3.WithLimit(int64(limit)))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return nil, fmt.Errorf("%w (%d)", ErrCompacted, revision)
	case err != nil:
		return nil, fmt.Errorf("read %s at revision %d: %w", from, revision, err)
	}
	return answer, nil
}

// storedResources returns all that have a store, in the order of their keys.
func (c *Client) storedResources() (all []*storedResource) {
	for _, r := range c.resources.Range {
		all = append(all, r.(*storedResource))
	}
	slices.SortFunc(all, func(a, b *storedResource) int { return strings.Compare(a.prefix+"/", b.prefix+"/") })
	return all
}

// jsonOf returns a function that turns what is stored of a resource into JSON.
func jsonOf(encoding Encoding, codec runtime.Codec) func(data []byte) ([]byte, error) {
	sound := func(data []byte, err error) ([]byte, error) {
		if err == nil && !json.Valid(data) {
			err = errors.New("it is no JSON")
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSpace(data), nil
	}
	if encoding.Serializer == nil { // it is stored as JSON
		return func(data []byte) ([]byte, error) {
			_, err := runtime.Decode(codec, data)
			return sound(data, err)
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(encoding.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	encoder := encoding.Serializer.EncoderForVersion(info.Serializer, runtime.GroupVersioner(schema.GroupVersions{encoding.Version}))
	return func(data []byte) ([]byte, error) {
		obj, err := runtime.Decode(codec, data)
		if err != nil {
			return nil, err
		}
		return sound(runtime.Encode(encoder, obj))
	}
}
