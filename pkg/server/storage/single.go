package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// single reads from etcd, as a get does, consistent lists that cost etcd little: of one object by name, and a page of
// one logical cluster's objects. The watch cache would ask etcd how far it is, too, and then wait: for the next answer
// of a request for progress, of which it makes ten a second, or up to 3 s if its watch stands still. The election reads
// its Lease in this way after a failed renewal, and controllers delete what is in a cluster by such pages.
type single struct {
	storage.Interface
	etcd storage.Interface
}

func (s *single) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.ResourceVersion == "" && opts.ResourceVersionMatch == "" && (!opts.Recursive || firstPage(ctx, opts.Predicate)) {
		return s.etcd.GetList(ctx, key, opts, list)
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

// largestPage is the size of the controllers' pages (content.PageSize). Users ask for larger ones: kubectl for 500
// objects, which can be hundreds of MiB. The watch cache has those in memory already.
const largestPage = 50

// firstPage reports whether the list is the first page of all objects in one logical cluster. A selector could have
// etcd read many objects for one.
func firstPage(ctx context.Context, p storage.SelectionPredicate) bool {
	cluster, ok := clusters.From(ctx)
	return ok && cluster != clusters.Wildcard && p.Continue == "" && p.Limit > 0 && p.Limit <= largestPage && p.Empty()
}
