package storage

import (
	"context"

	"go.etcd.io/etcd/client/v3/kubernetes"
)

// guard stands between upstream's etcd3 stores and etcd. Every change of an object is one of its two writes, so here,
// and nowhere above, a condition can be put into the very transaction that makes the change. It decides nothing yet.
type guard struct{ next kubernetes.Interface }

func (g *guard) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	return g.next.Get(ctx, key, opts)
}

func (g *guard) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return g.next.List(ctx, prefix, opts)
}

func (g *guard) Count(ctx context.Context, prefix string, opts kubernetes.CountOptions) (int64, error) {
	return g.next.Count(ctx, prefix, opts)
}

// OptimisticPut is what creations and updates end in.
func (g *guard) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	return g.next.OptimisticPut(ctx, key, value, expected, opts)
}

// OptimisticDelete is what deletions end in.
func (g *guard) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	return g.next.OptimisticDelete(ctx, key, expected, opts)
}

var _ kubernetes.Interface = (*guard)(nil)
