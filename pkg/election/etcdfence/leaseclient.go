package etcdfence

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// LeaseClient is a client of the Leases of one namespace that are stored in the server's own etcd, without being a
// resource of the server. It is for aggregated servers, whose API of Leases is the main server's, in another etcd:
// nothing written here could be compared with a Lease there. It does what election.Config.Client needs.
//
// Every replica of the server must use one. Nobody sees these Leases with kubectl.
type LeaseClient struct {
	store     storage.Interface
	destroy   factory.DestroyFunc
	namespace string
	prefix    string // of the keys of the namespace's Leases, in the store
}

var leases = coordinationv1.Resource("leases")

// LeaseClient returns one for a namespace. It keeps Leases where tokens are compared with them: below the server's own
// prefix in etcd, encrypted if Leases are, unless Config.Leases says otherwise, with which it is not to be used. It
// waits for etcd, some 20 seconds at most. Call Close at the end.
func (g *Guard) LeaseClient(namespace string) (*LeaseClient, error) {
	if g.config.Stored == nil {
		return nil, fmt.Errorf("etcdfence.Config.Stored is nil: give server.Config.RESTOptionsGetter, which says where to store Leases")
	}
	how, err := g.config.Stored.GetRESTOptions(leases, nil)
	if err != nil {
		return nil, fmt.Errorf("how to store Leases: %w", err)
	}
	config := *how.StorageConfig
	config.Codec = leaseCodec()
	store, destroy, err := generic.NewRawStorage(&config, func() runtime.Object { return &coordinationv1.Lease{} },
		func() runtime.Object { return &coordinationv1.LeaseList{} }, "/"+how.ResourcePrefix)
	if err != nil {
		return nil, fmt.Errorf("store of Leases: %w", err)
	}
	return &LeaseClient{store: store, destroy: destroy, namespace: namespace, prefix: "/" + how.ResourcePrefix + "/" + namespace + "/"}, nil
}

// Close ends the connection to etcd. No call may be under way.
func (c *LeaseClient) Close() { c.destroy() }

// List implements election.LeaseClient. Of the selectors, only that on metadata.name counts.
func (c *LeaseClient) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	key, how, err := c.selected(opts)
	if err != nil {
		return nil, err
	}
	out := &coordinationv1.LeaseList{}
	if err := c.store.GetList(ctx, key, how, out); err != nil {
		return nil, storageerrors.InterpretListError(err, leases)
	}
	return out, nil
}

// Watch implements election.LeaseClient.
func (c *LeaseClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	key, how, err := c.selected(opts)
	if err != nil {
		return nil, err
	}
	w, err := c.store.Watch(ctx, key, how)
	if err != nil {
		return nil, storageerrors.InterpretWatchError(err, leases, "")
	}
	return w, nil
}

// Create implements election.LeaseClient.
func (c *LeaseClient) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	made := lease.DeepCopy()
	made.Namespace, made.UID, made.CreationTimestamp = c.namespace, uuid.NewUUID(), metav1.Now()
	if made.Name == "" {
		return nil, apierrors.NewBadRequest("a Lease needs a name")
	}
	out := &coordinationv1.Lease{}
	if err := c.store.Create(ctx, c.prefix+made.Name, made, out, 0); err != nil {
		return nil, storageerrors.InterpretCreateError(err, leases, made.Name)
	}
	return out, nil
}

// Update implements election.LeaseClient. It changes the object at its resource version only, if it has one.
func (c *LeaseClient) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	out, only := &coordinationv1.Lease{}, preconditions(lease.UID, lease.ResourceVersion)
	err := c.store.GuaranteedUpdate(ctx, c.prefix+lease.Name, out, false, only, func(was runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		next, old := lease.DeepCopy(), was.(*coordinationv1.Lease)
		next.Namespace, next.UID, next.CreationTimestamp, next.ResourceVersion = c.namespace, old.UID, old.CreationTimestamp, old.ResourceVersion
		return next, nil, nil
	}, nil)
	if err != nil {
		return nil, storageerrors.InterpretUpdateError(err, leases, lease.Name)
	}
	return out, nil
}

// Delete implements election.LeaseClient.
func (c *LeaseClient) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	only := preconditions("", "")
	if p := opts.Preconditions; p != nil {
		only = &storage.Preconditions{UID: p.UID, ResourceVersion: p.ResourceVersion}
	}
	err := c.store.Delete(ctx, c.prefix+name, &coordinationv1.Lease{}, only, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	return storageerrors.InterpretDeleteError(err, leases, name)
}

func preconditions(uid types.UID, version string) *storage.Preconditions {
	out := &storage.Preconditions{}
	if uid != "" {
		out.UID = &uid
	}
	if version != "" {
		out.ResourceVersion = &version
	}
	return out
}

// selected returns what a list or a watch is of.
func (c *LeaseClient) selected(opts metav1.ListOptions) (key string, _ storage.ListOptions, _ error) {
	field, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return "", storage.ListOptions{}, apierrors.NewBadRequest(err.Error())
	}
	name, one := field.RequiresExactMatch("metadata.name")
	how := storage.ListOptions{
		ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch, Recursive: !one,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr,
			Limit: opts.Limit, Continue: opts.Continue, AllowWatchBookmarks: opts.AllowWatchBookmarks,
		},
	}
	return c.prefix + name, how, nil
}

// leaseCodec stores Leases as upstream does, and reads them as they are in API v1.
func leaseCodec() runtime.Codec {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("no serializer for " + runtime.ContentTypeProtobuf)
	}
	v1 := coordinationv1.SchemeGroupVersion
	return codecs.CodecForVersions(info.Serializer, decoder, v1, v1)
}
