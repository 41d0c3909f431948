package etcdcheck

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/format"
)

// Formats returns which formats this replica reads, and what the record has last said of the shard's.
func (c *Shard) Formats() (reads format.Formats, stored format.Record) {
	if last := c.stored.Load(); last != nil {
		stored = *last
	}
	stored.Format = stored.Format.OrFirst()
	return c.formats, stored
}

// ErrNotReadHere is of a format that this replica does not read, so that it can raise no shard to it.
var ErrNotReadHere = errors.New("this replica does not read that format")

// Raise has the record say that the shard is in a newer format, which this replica has to read. Replicas that do not
// read it end then: whoever calls it knows that there are none. It may be called again, and does nothing then.
func (c *Shard) Raise(ctx context.Context, to format.Format) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if to != c.formats.Newest {
		return fmt.Errorf("%w: it raises shards to format %d, not %d", ErrNotReadHere, c.formats.Newest, to)
	}
	there, err := c.client.Get(ctx, c.key)
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	if len(there.Kvs) == 0 {
		return fmt.Errorf("there is no record of this shard at %s: give the key the value that it had", c.key)
	}
	record, err := c.read(there.Kvs[0].Value)
	if err != nil || record.Format.OrFirst() >= to {
		return err
	}
	if err := c.change(ctx, there.Kvs[0].Value, there.Kvs[0].ModRevision, map[string]any{"format": to, "readable-from": c.formats.Since}); err != nil {
		return err
	}
	c.stored.Store(&format.Record{Format: to, ReadableFrom: c.formats.Since})
	klog.FromContext(ctx).Info("The shard is in a newer format now, and replicas that do not read it end", "key", c.key, "format", to, "readableFrom", c.formats.Since)
	return nil
}
