package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
)

// countInterval is how often the stored objects are counted, for metrics.
const countInterval = time.Minute

// With snapshots the watch cache keeps a version of its tree for each change of the last minutes, which was two fifths of the heap
// (docs/BENCHMARKS.md). They serve the later pages of long lists, which etcd serves without them.
//
// The estimate of the sizes of lists keeps each key a second time. It is for upstream's priority and fairness, which is not used: what a list costs is
// known by cluster (see tally).
//
// --feature-gates can bring both back.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.ListFromCacheSnapshot, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SizeBasedListCostEstimate, false))
}

// Encoding says how a resource's objects are stored.
type Encoding struct {
	Serializer runtime.StorageSerializer
	// Version is the API version that is stored.
	Version schema.GroupVersion
	// MediaType is "application/json", or a binary one that all types of Version support.
	MediaType string
	// Uncached resources have no watch cache: lists and watches go to etcd. It is for resources that are written much more
	// often than read.
	Uncached bool
	// Term returns the term that a Lease shows. Fencing tokens are compared with it. It is nil for all other resources.
	Term func(runtime.Object) fence.Token
}

// restOptions gives each resource its storage layers over the shared client.
type restOptions struct {
	client   *Client
	encoding func(schema.GroupResource) (Encoding, error)
}

// NewRESTOptionsGetter returns a getter that gives each resource its storage layers over client. It calls encoding once for each
// resource.
func NewRESTOptionsGetter(client *Client, encoding func(schema.GroupResource) (Encoding, error)) generic.RESTOptionsGetter {
	return &restOptions{client: client, encoding: encoding}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	encoding, err := o.encoding(resource)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("how to store %s: %w", resource, err)
	}
	config := storagebackend.NewDefaultConfig(o.client.config.Prefix, nil)
	config.Codec, config.EncodeVersioner, err = serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  encoding.MediaType,
		StorageSerializer: encoding.Serializer,
		StorageVersion:    encoding.Version,
		MemoryVersion:     schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal},
		Config:            *config,
	})
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("codec of %s: %w", resource, err)
	}
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		Decorator:               o.decorator(encoding),
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          resourcePrefix(resource),
		CountMetricPollPeriod:   countInterval,
	}, nil
}

func resourcePrefix(resource schema.GroupResource) string {
	group := resource.Group
	if group == "" {
		group = "core"
	}
	return "/" + group + "/" + resource.Resource
}

// decorator returns a function that makes the layers of one resource, from below.
func (o *restOptions) decorator(encoding Encoding) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource, prefix string, clusterless func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, _ storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		versioner := storage.APIObjectVersioner{}
		reading := seeing{versioner, o.client.history}
		one, transformer := etcd3.NewDefaultDecoder(config.Codec, reading), o.transformer(config.GroupResource)
		codec := sharing{config.Codec} // of watches
		store, err := etcd3.New(
			o.client.etcd, o.client.compactor, codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource,
			transformer, config.LeaseManagerConfig, decoder{one, etcd3.NewDefaultDecoder(codec, reading)}, reading,
		)
		if err != nil {
			return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
		}
		if encoding.Term != nil {
			decode := func(ctx context.Context, kv *mvccpb.KeyValue) (runtime.Object, error) {
				data, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
				if err != nil {
					return nil, err
				}
				object := newFunc()
				return object, one.Decode(data, object, kv.ModRevision)
			}
			o.client.guard.terms.leases.Store(&leases{decode: decode, term: encoding.Term, prefix: prefix, root: config.Prefix})
		}
		guarded := &fenced{Interface: &stream{Interface: store, resource: config.GroupResource.String()}, guard: o.client.guard, holdsLeases: encoding.Term != nil}
		stamped := &stamp{Interface: guarded, prefix: prefix}
		if encoding.Uncached {
			return &router{Interface: stamped, prefix: prefix}, sync.OnceFunc(store.Close), nil
		}
		cached, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage:             &tallied{stamped, o.client.tallies.add(config.GroupResource, config.Prefix+prefix)},
			Versioner:           versioner,
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      prefix,
			KeyFunc:             keyFunc(prefix, clusterless),
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        shareAttrs(attrs),
			IndexerFuncs:        byCluster,
			Indexers:            indexers,
			Codec:               config.Codec,
		})
		if err != nil {
			store.Close()
			return nil, nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
		}
		delegator := cacher.NewCacheDelegator(cached, stamped)
		destroy := sync.OnceFunc(func() {
			delegator.Stop()
			cached.Stop()
			store.Close()
		})
		return &router{Interface: &dispatch{&single{Interface: delegator, etcd: stamped}}, prefix: prefix}, destroy, nil
	}
}

// transformer returns what encrypts a resource's objects.
func (o *restOptions) transformer(resource schema.GroupResource) value.Transformer {
	if transformers := o.client.config.Transformers; transformers != nil {
		return transformers.TransformerForResource(resource)
	}
	return identity.NewEncryptCheckTransformer()
}

// keyFunc returns a function that derives an object's key from the object alone.
func keyFunc(prefix string, clusterless func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return "", fmt.Errorf("object of %s has no metadata: %w", prefix, err)
		}
		key, err := clusterless(obj)
		if err != nil {
			return "", err
		}
		return clusters.StorageKey(prefix, key, logicalcluster.From(accessor))
	}
}

var _ generic.RESTOptionsGetter = (*restOptions)(nil)
