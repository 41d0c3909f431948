package storage

import (
	"context"

	"github.com/google/uuid"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// streamKey is the metadata by which etcd's client tells watch streams apart.
const streamKey = "regent-resource"

// stream gives a resource a watch stream of its own on the shared client. A consistent read from the watch cache waits
// until etcd reports the watch's progress. etcd reports none on a stream while one of its watches begins beyond the
// last revision. On one stream for all resources, a cache that was just filled would block the reads of all others
// until the next write. On a new shard that is forever: the election begins with a read.
type stream struct {
	storage.Interface
	resource string
}

func (s *stream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(s.own(ctx), key, opts)
}

// RequestWatchProgress must use the same stream as the watch.
func (s *stream) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(s.own(ctx))
}

func (s *stream) own(ctx context.Context) context.Context {
	name, ok := ctx.Value(sharedStream{}).(string)
	if !ok {
		name = s.resource
	}
	return metadata.AppendToOutgoingContext(ctx, streamKey, name)
}

type sharedStream struct{}

// withSharedStream returns a context whose watches, of whichever resources, are on one stream, apart from all others.
func withSharedStream(ctx context.Context) context.Context {
	return context.WithValue(ctx, sharedStream{}, uuid.NewString())
}
