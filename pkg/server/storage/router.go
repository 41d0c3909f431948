package storage

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// router puts the logical cluster in the request's context (see clusters.From) into the keys of upstream's registry,
// which have none. So registries can keep upstream's key functions.
type router struct {
	storage.Interface
	client *Client
	prefix string
}

func (r *router) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key, err := r.one(ctx, key)
	if err != nil {
		return err
	}
	return r.Interface.Create(ctx, key, obj, out, ttl)
}

func (r *router) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	key, err := r.one(ctx, key)
	if err != nil {
		return err
	}
	return r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (r *router) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, err := r.one(ctx, key)
	if err != nil {
		return err
	}
	return r.Interface.Get(ctx, key, opts, out)
}

func (r *router) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	key, err := r.one(ctx, key)
	if err != nil {
		return err
	}
	return r.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

func (r *router) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	key, opts, err := r.many(ctx, key, opts)
	if err != nil {
		return err
	}
	return r.Interface.GetList(ctx, key, opts, list)
}

func (r *router) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	key, opts, err := r.many(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return r.Interface.Watch(ctx, key, opts)
}

// one returns the key of an object, which is always in one cluster.
func (r *router) one(ctx context.Context, key string) (string, error) {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return "", apierrors.NewInternalError(fmt.Errorf("storage key %q: %w", key, clusters.ErrNoCluster))
	}
	routed, err := clusters.StorageKey(r.prefix, key, cluster)
	if err != nil {
		return "", apierrors.NewBadRequest(err.Error())
	}
	return routed, nil
}

// many returns the key and the options of a list or watch, in one cluster or in all.
func (r *router) many(ctx context.Context, key string, opts storage.ListOptions) (string, storage.ListOptions, error) {
	if cluster, _ := clusters.From(ctx); cluster != clusters.Wildcard {
		key, err := r.one(ctx, key)
		return key, opts, err
	}
	if namespace := request.NamespaceValue(ctx); namespace != "" && !selectsNamespace(opts.Predicate, namespace) {
		return "", opts, apierrors.NewBadRequest("a list over all logical clusters is over all namespaces: select one with the field selector metadata.namespace")
	}
	// To select by name or namespace, upstream makes the key of one object or namespace. Over all clusters there
	// may be many, so all are listed, and the predicate selects.
	opts.Recursive = true
	return r.prefix, opts, nil
}

// selectsNamespace reports whether the predicate selects objects of the namespace only.
func selectsNamespace(p storage.SelectionPredicate, namespace string) bool {
	if p.Field == nil {
		return false
	}
	selected, ok := p.Field.RequiresExactMatch("metadata.namespace")
	return ok && selected == namespace
}
