package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// single reads one object from etcd itself, when a list selects it by name and is to be consistent: as a get does. From the
// watch cache it would take a read of etcd, too, and then up to 3 s if the cache's watch stands still. The election reads its
// Lease in this way when a renewal has failed.
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
