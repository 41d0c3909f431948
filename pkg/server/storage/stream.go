package storage

import (
	"context"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// streamKey is the metadata by which etcd's client tells watch streams apart.
const streamKey = "regent-resource"

// stream gives a resource a watch stream of its own on the shared client. A consistent read from the watch cache waits
// until etcd reports the watch's progress, and etcd reports none on a stream as long as one of its watches begins beyond
// the last revision. On a stream for all resources, one cache that was filled just now would hold up the reads of all
// others until something is written, which on a new shard is forever: the election itself begins with a read.
type stream struct {
	storage.Interface
	resource string
}

func (s *stream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(s.own(ctx), key, opts)
}

// RequestWatchProgress must meet the stream of the watch.
func (s *stream) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(s.own(ctx))
}

func (s *stream) own(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamKey, s.resource)
}
