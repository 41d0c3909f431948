package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// single reads from etcd, as a get does, when a consistent list selects one object by name. The watch cache would read from
// etcd, too, and then wait up to 3 s if its watch stands still. The election reads its Lease in this way after a failed
// renewal.
type single struct {
	storage.Interface
	etcd storage.Interface
}

func (s *single) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if !opts.Recursive && opts.ResourceVersion == "" {
		return s.etcd.GetList(ctx, key, opts, list)
	}
	return s.Interface.GetList(ctx, key, opts, list)
}
