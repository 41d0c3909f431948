package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/regent-project/regent/pkg/clusters"
)

const (
	// loadBytes is how many bytes one transaction has, and as many as its last object has: etcd takes 1.5 MiB.
	loadBytes = 256 << 10
	// loadersAtOnce is how many transactions are under way, and writersAtOnce how many of one object each.
	loadersAtOnce = 8
	writersAtOnce = 64
)

// ErrUnstorable is of an object that this version cannot store at its place.
var ErrUnstorable = errors.New("it cannot be stored")

// ErrTooLarge is of an object that etcd does not take.
var ErrTooLarge = errors.New("it is too large for etcd (--max-request-bytes)")

// ErrNotEmpty is of a prefix that is to be filled, and in which there is something.
var ErrNotEmpty = errors.New("etcd has keys below the prefix already")

// Load writes objects as they are, with their uids, into a prefix that has none. It calls each with a function that
// takes one object: its place and JSON, as ReadShardPage has them. Nobody may serve from the prefix meanwhile: mark is
// written at a key before, and removed once all objects are there, so that whoever reads it finds out. An error may
// leave some of them, and the mark.
func (c *Client) Load(ctx context.Context, key, mark string, each func(take func(StoredIn) error) error) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	begun, err := c.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(c.config.Prefix+"/").WithPrefix(), "=", 0)).
		Then(clientv3.OpPut(key, mark)).Commit()
	if err != nil {
		return fmt.Errorf("ask etcd whether the prefix %s is empty: %w", c.config.Prefix, err)
	}
	if !begun.Succeeded {
		return fmt.Errorf("%w (%s)", ErrNotEmpty, c.config.Prefix)
	}
	if err := c.loadAll(ctx, nil, each); err != nil {
		return err
	}
	ended, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", mark)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("remove the mark at %s: %w", key, err)
	}
	if !ended.Succeeded {
		return fmt.Errorf("somebody else has written at %s while the prefix was filled: fill an empty one", key)
	}
	return nil
}

// errUnmet is of a transaction whose conditions do not hold.
var errUnmet = errors.New("what the write rests on has changed")

// loadAll writes what each calls its function with, in transactions that each compare when. The error wraps errUnmet if
// that does not hold any more. Without when nobody watches, and a transaction has many objects. Otherwise it has one:
// see together.
func (c *Client) loadAll(ctx context.Context, when []clientv3.Cmp, each func(take func(StoredIn) error) error) error {
	writers, ctx := errgroup.WithContext(ctx)
	most := opsAtOnce
	writers.SetLimit(loadersAtOnce)
	if len(when) > 0 {
		most = 1
		writers.SetLimit(writersAtOnce)
	}
	var batch []StoredIn
	size := 0
	flush := func() error {
		some := batch
		batch, size = nil, 0
		if len(some) > 0 {
			writers.Go(func() error { return c.load(ctx, when, some) })
		}
		if err := ctx.Err(); err != nil { // a writer has failed, or the caller has gone
			return context.Cause(ctx)
		}
		return nil
	}
	err := each(func(in StoredIn) error {
		batch, size = append(batch, in), size+len(in.JSON)
		if size < loadBytes && len(batch) < most {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if failed := writers.Wait(); failed != nil {
		return failed
	}
	return err
}

// load writes, or deletes, some objects in one transaction.
func (c *Client) load(ctx context.Context, when []clientv3.Cmp, some []StoredIn) error {
	ops := make([]clientv3.Op, len(some))
	for i, in := range some {
		var err error
		if ops[i], err = c.opOf(ctx, in); err != nil {
			return fmt.Errorf("%s of logical cluster %s: %w", in.Key, in.Cluster, err)
		}
	}
	txn := c.etcd.Txn(ctx)
	if len(when) > 0 {
		txn = txn.If(when...)
	}
	made, err := txn.Then(ops...).Commit()
	switch {
	case err == nil && !made.Succeeded:
		err = errUnmet
	// the client's own limit
	case errors.Is(err, rpctypes.ErrRequestTooLarge), status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("write %s and %d more into etcd: %w", some[0].Key, len(some)-1, err)
	}
	return nil
}

// opOf returns what writes, or deletes, an object in etcd.
func (c *Client) opOf(ctx context.Context, in StoredIn) (clientv3.Op, error) {
	resources := c.storedResources()
	n := slices.IndexFunc(resources, func(r *storedResource) bool { return strings.HasPrefix(in.Key, r.name()) })
	if n < 0 {
		return clientv3.Op{}, fmt.Errorf("%w: this version stores no such resource: use the version of Regent that wrote it", ErrUnstorable)
	}
	r := resources[n]
	at, err := clusters.StorageKey(r.prefix, "/"+in.Key, in.Cluster)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	at = c.config.Prefix + at
	if in.Gone {
		return clientv3.OpDelete(at), nil
	}
	obj, err := runtime.Decode(r.codec, in.JSON)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("%w: decode it: %w", ErrUnstorable, err)
	}
	data, err := runtime.Encode(r.codec, obj)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode it: %w", err)
	}
	data, err = r.transformer.TransformToStorage(ctx, data, value.DefaultContext(at))
	return clientv3.OpPut(at, string(data), clientv3.WithLease(in.expires)), err
}
