package storage

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
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
	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
)

// countInterval is how often the stored objects are counted, for metrics.
const countInterval = time.Minute

// With snapshots the watch cache keeps a version of its tree for each change of the last minutes, which was two fifths
// of the heap (docs/BENCHMARKS.md). They serve the later pages of long lists, which etcd serves without them.
//
// The estimate of the sizes of lists keeps each key a second time. It is for upstream's priority and fairness, which
// is not used: what a list costs is known by cluster (see tally).
//
// The detection of inconsistent caches reads and decodes all that is stored every five to eight minutes, on each
// replica, which for a million workspaces is most of what it does. Of what it finds it tells the log, and the
// snapshots.
//
// --feature-gates can bring them back.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.DetectCacheInconsistency, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.ListFromCacheSnapshot, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SizeBasedListCostEstimate, false))
}

// Encoding says how a resource's objects are stored.
type Encoding struct {
	// Codec encodes and decodes stored objects. Nil: what Serializer has for Version and MediaType does.
	Codec      runtime.Codec
	Serializer runtime.StorageSerializer
	// Version is the API version that is stored.
	Version schema.GroupVersion
	// MediaType is "application/json", or a binary one that all types of Version support.
	MediaType string
	// Uncached resources have no watch cache: lists and watches go to etcd. It is for resources that are written
	// much more often than read.
	Uncached bool
	// Term returns the term that a Lease shows. Fencing tokens are compared with it. It is nil for all other
	// resources.
	Term func(runtime.Object) fence.Token
	// Share is called with the bytes of an object that is about to be decoded for the watch cache. It returns which
	// of them to decode, and a function that is called with the object: it replaces parts by equal parts of other
	// objects, or puts in what was not decoded. It may be nil.
	Share func(data []byte) (rest []byte, complete func(runtime.Object))
	// Collections is for a resource that stores objects of several kinds: how many segments of a key, behind the
	// logical cluster, name the collection of an object. A write then costs the watchers of its own collection. 0:
	// a cluster's objects are one collection.
	Collections int
	// BuiltIn returns the objects that each logical cluster has until somebody changes them. It may be nil.
	BuiltIn func(clusters.BuiltIn) []runtime.Object
}

// restOptions gives each resource its storage layers over the shared client.
type restOptions struct {
	client   *Client
	encoding func(schema.GroupResource) (Encoding, error)
}

// NewRESTOptionsGetter returns a getter that gives each resource its storage layers over client. It calls encoding
// once for each resource.
func NewRESTOptionsGetter(client *Client, encoding func(schema.GroupResource) (Encoding, error)) generic.RESTOptionsGetter {
	return &restOptions{client: client, encoding: encoding}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	encoding, err := o.encoding(resource)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("how to store %s: %w", resource, err)
	}
	config := storagebackend.NewDefaultConfig(o.client.config.Prefix, encoding.Codec)
	if config.Codec == nil {
		config.Codec, config.EncodeVersioner, err = serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
			StorageMediaType:  encoding.MediaType,
			StorageSerializer: encoding.Serializer,
			StorageVersion:    encoding.Version,
			MemoryVersion:     schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal},
			Config:            *config,
		})
	}
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
		codec := sharing{config.Codec, encoding.Share} // of watches and lists
		items := lenientDecoder{etcd3.NewDefaultDecoder(codec, reading), reading}
		store, err := etcd3.New(
			o.client.etcd, o.client.compactor, lenient{codec, newFunc}, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource,
			transformer, config.LeaseManagerConfig, decoder{one, items}, reading,
		)
		if err != nil {
			return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
		}
		o.client.resources.Store(config.GroupResource, &storedResource{prefix, transformer, jsonOf(encoding, config.Codec), config.Codec})
		holdsLeases := "" // the prefix of its keys, if this store does
		if encoding.Term != nil {
			holdsLeases = config.Prefix
			o.client.guard.SetLeases(leases(config.Prefix, prefix, func(ctx context.Context, kv *mvccpb.KeyValue) (fence.Token, error) {
				data, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
				if err != nil {
					return fence.Token{}, err
				}
				object := newFunc()
				if err := one.Decode(data, object, kv.ModRevision); err != nil {
					return fence.Token{}, err
				}
				return encoding.Term(object), nil
			}))
		}
		keys := keyFunc(prefix, clusterless)
		read := &stream{Interface: &sound{Interface: store, resource: config.GroupResource, prefix: prefix, keys: keys, aside: &o.client.aside}, resource: config.GroupResource.String()}
		guarded := o.client.guard.Storage(read, holdsLeases)
		stamped := &stamp{Interface: &metered{guarded, o.client.config.Meter, !encoding.Uncached}, prefix: prefix}
		if encoding.Uncached || o.client.config.Uncached {
			routed := &router{Interface: stamped, client: o.client, prefix: prefix}
			return Beneath(routed, routed), sync.OnceFunc(store.Close), nil
		}
		watched := collections{prefix, encoding.Collections}
		cached, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage:             &tallied{stamped, o.client.tallies.add(config.GroupResource, config.Prefix+prefix, o.client.config.Meter.Saw)},
			Versioner:           versioner,
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      prefix,
			KeyFunc:             keys,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        shareAttrs(attrs),
			IndexerFuncs:        watched.indexers(keys),
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
		routed := &router{Interface: &dispatch{&single{Interface: delegator, etcd: stamped}, watched}, client: o.client, prefix: prefix}
		if config.GroupResource == corev1alpha1.Resource("logicalclusters") {
			o.client.clusterObjects.Store(&clusterObjects{stamped, o.client.config.Prefix, prefix, config.Codec, transformer})
		}
		if config.GroupResource == tenancyv1alpha1.Resource("workspaces") {
			return Beneath(routed, &paired{routed, o.client, prefix}), destroy, nil
		}
		if encoding.BuiltIn != nil {
			shown := &builtIn{
				Interface: routed, client: o.client, resource: config.GroupResource, prefix: prefix, key: clusterless, of: encoding.BuiltIn,
				etcd: stamped, newFunc: newFunc, newList: newListFunc,
			}
			return Beneath(routed, shown), destroy, nil
		}
		if encoding.Collections > 0 { // who shows these objects does the rest: here they cannot be changed
			return routed, destroy, nil
		}
		return Beneath(routed, routed), destroy, nil
	}
}

// leases says where the shard stores Leases, and how it reads their terms there. The guard decodes what it has read
// itself: a Get through the store of Leases would be one more read, and might show another revision than the one that
// is compared.
func leases(root, prefix string, term func(context.Context, *mvccpb.KeyValue) (fence.Token, error)) etcdfence.Leases {
	return etcdfence.Leases{
		Prefix: path.Join(root, prefix),
		Key: func(token fence.Token) (string, error) {
			key, err := clusters.StorageKey(prefix, prefix+"/"+token.Namespace+"/"+token.Name, token.Cluster)
			return path.Join(root, key), err
		},
		Term: term,
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
