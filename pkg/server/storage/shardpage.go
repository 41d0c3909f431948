package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
)

// StoredIn is an object of one of the shard's logical clusters, or the deletion of one.
type StoredIn struct {
	Cluster logicalcluster.Name
	Stored
	// In says among which objects it is: resource and logical cluster, such as core/configmaps/2xk. Place, of which
	// In is the begin, orders the objects of all logical clusters.
	In, Place string
	// Gone: it was deleted, at Revision.
	Gone bool
	// expires is the lease of etcd with which it is written.
	expires clientv3.LeaseID
}

// in returns what is at a place of a resource. ok is false for a key that has no logical cluster: nobody serves it.
func (r *storedResource) in(s Stored, place string) (_ StoredIn, ok bool) {
	cluster, rest, ok := strings.Cut(strings.TrimPrefix(place, r.name()), "/")
	s.Key = r.name() + rest
	return StoredIn{Cluster: logicalcluster.Name(cluster), Stored: s, In: r.name() + cluster, Place: place}, ok && cluster != "" && rest != ""
}

// ReadShardPage is ReadPage of all logical clusters, in the order of their places. What goes between two pages by a
// place is the same.
func (c *Client) ReadShardPage(ctx context.Context, revision int64, after string, size int, visit func(StoredIn) error) (more bool, err error) {
	for _, r := range c.storedResources() {
		more, err = c.readBehind(ctx, r, c.config.Prefix+r.prefix+"/", revision, after, &size, func(s Stored) error {
			in, ok := r.in(s, s.Key)
			if !ok {
				return nil
			}
			return visit(in)
		})
		if err != nil || more {
			return more, err
		}
	}
	return false, nil
}

// errProgressUnknown is of an etcd that may report progress before the changes themselves: some would be missed.
var errProgressUnknown = errors.New("it is not known yet that each member of etcd has version 3.4.31, 3.5.13 or a newer one, which tell reliably how far a watch is")

// progressInterval is how often etcd is asked how far a watch is.
const progressInterval = 20 * time.Millisecond

// ReadChanges calls visit with what was changed in the shard behind a revision, in the order of the changes, up to
// another one. If they have so many bytes, or more, it returns an earlier revision, up to which it has read all. An
// error wraps ErrCompacted if etcd has the changes no more, or never had the revision.
func (c *Client) ReadChanges(ctx context.Context, after, upTo int64, size int, visit func(StoredIn) error) (through int64, err error) {
	return c.readChanges(ctx, "", after, upTo, size, visit)
}

// ReadChangesIn is ReadChanges of one logical cluster. With AsTheyCome as the revision it goes on until visit, or the
// context, ends it: etcd tells a watch that has caught up of each change at once, and one that begins in the past only
// every 100 ms.
func (c *Client) ReadChangesIn(ctx context.Context, cluster logicalcluster.Name, after, upTo int64, size int, visit func(StoredIn) error) (through int64, err error) {
	return c.readChanges(ctx, cluster, after, upTo, size, visit)
}

// AsTheyCome is for ReadChangesIn.
const AsTheyCome = math.MaxInt64

// readChanges reads the changes of one logical cluster, or of all.
func (c *Client) readChanges(ctx context.Context, of logicalcluster.Name, after, upTo int64, size int, visit func(StoredIn) error) (through int64, err error) {
	if after >= upTo {
		return after, nil
	}
	if !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		return 0, errProgressUnknown
	}
	ctx, done := c.calls.begin(ctx)
	defer done()
	// A stream of its own: etcd tells the progress of a whole stream, see stream.
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), streamKey, uuid.NewString()))
	changes := c.etcd.Watch(ctx, c.config.Prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(after+1))
	defer func() {
		cancel()
		for range changes { // until it is closed
			continue
		}
	}()
	resources := c.storedResources()
	ask := time.NewTicker(progressInterval)
	defer ask.Stop()
	through = after
	for {
		select {
		case some, ok := <-changes:
			if !ok {
				return 0, fmt.Errorf("the watch of etcd has ended: %w", context.Cause(ctx))
			}
			if err := some.Err(); err != nil {
				return 0, changesLost(err, after)
			}
			for _, event := range some.Events {
				if event.Kv.ModRevision > upTo {
					return upTo, nil
				}
				through = event.Kv.ModRevision
				in, ok, err := c.changeOf(ctx, event, resources, of)
				if err == nil && ok {
					size -= len(event.Kv.Key) + len(in.JSON)
					err = visit(in)
				}
				if err != nil {
					return 0, err
				}
			}
			if through >= upTo || some.IsProgressNotify() && some.Header.Revision >= upTo {
				return upTo, nil
			}
			if size <= 0 && through > after { // the changes of one revision come together
				return through, nil
			}
		case <-ask.C:
			if upTo == AsTheyCome {
				continue
			}
			if err := c.etcd.RequestProgress(ctx); err != nil {
				return 0, fmt.Errorf("ask etcd how far its watch is: %w", err)
			}
		}
	}
}

func changesLost(err error, after int64) error {
	if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
		return fmt.Errorf("%w (%d)", ErrCompacted, after)
	}
	return fmt.Errorf("watch etcd behind revision %d: %w", after, err)
}

// changeOf returns what has changed. ok is false for what is no object, or of another logical cluster than that.
func (c *Client) changeOf(ctx context.Context, event *clientv3.Event, resources []*storedResource, of logicalcluster.Name) (in StoredIn, ok bool, err error) {
	place := strings.TrimPrefix(string(event.Kv.Key), c.config.Prefix+"/")
	n := slices.IndexFunc(resources, func(r *storedResource) bool { return strings.HasPrefix(place, r.name()) })
	if n < 0 {
		return in, false, nil
	}
	s := Stored{Revision: event.Kv.ModRevision}
	if in, ok = resources[n].in(s, place); !ok || of != "" && in.Cluster != of {
		return in, false, nil
	}
	if event.Type == mvccpb.PUT {
		if s, err = resources[n].read(ctx, event.Kv); err != nil {
			return in, false, err
		}
	}
	in, ok = resources[n].in(s, place)
	in.Gone = event.Type == mvccpb.DELETE
	return in, ok, nil
}
