package etcdcheck

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/format"
)

const (
	// followPause is the time between two watches of the record, if etcd ends one.
	followPause = time.Second
	// readTimeout is how long a member of etcd may take to tell the record.
	readTimeout = 5 * time.Second
)

// KeepReadable watches the record, and returns an error that wraps format.ErrUnreadable once the shard is in a format
// that this replica does not read: it must then end. Otherwise it returns nil when ctx ends. Call it once Run has
// returned nil.
func (c *Shard) KeepReadable(ctx context.Context) error {
	for {
		if err := c.watch(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPause):
		}
	}
}

// watch reads the record, and whatever it becomes until etcd ends the watch. A member of etcd that is cut off from the
// others ends it, so that another one tells.
func (c *Shard) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	reading, done := context.WithTimeout(ctx, readTimeout)
	now, err := c.client.Get(reading, c.key)
	done()
	if err != nil {
		return nil //nolint:nilerr // etcd is away, as /readyz says: another watch begins after the pause
	}
	for _, kv := range now.Kvs {
		if err := c.judge(ctx, kv.Value); err != nil {
			return err
		}
	}
	for news := range c.client.Watch(ctx, c.key, clientv3.WithRev(now.Header.Revision+1)) {
		for _, event := range news.Events {
			if event.Type != clientv3.EventTypePut {
				continue
			}
			if err := c.judge(ctx, event.Kv.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge returns an error if this replica does not read the format of a record. A record that cannot be read at all ends
// no replica that runs.
func (c *Shard) judge(ctx context.Context, stored []byte) error {
	_, err := c.read(stored)
	if errors.Is(err, format.ErrUnreadable) {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "No replica of this shard can start any more: give the key the value that it had", "key", c.key)
	}
	return nil
}
