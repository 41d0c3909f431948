package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Leases says where a server stores Leases, and how they are read there. LeasesOf returns that of most servers.
type Leases struct {
	// Prefix begins the etcd keys of all Leases, such as "/registry/leases". It ends without a slash.
	Prefix string
	// Key returns the etcd key of a token's Lease. It fails if this server cannot have stored that Lease.
	Key func(fence.Token) (string, error)
	// Term returns the term that a stored Lease shows, decrypted and decoded: at least UID, Holder and Epoch. Where
	// the Lease is its key says.
	Term func(context.Context, *mvccpb.KeyValue) (fence.Token, error)
}

// has reports whether a key is that of a Lease.
func (l *Leases) has(key string) bool { return strings.HasPrefix(key, l.Prefix+"/") }

// LeasesOf returns how a server stores Leases that stores as stored says: server.Config.RESTOptionsGetter once the
// options of etcd were applied. It is right also for Leases that are encrypted, and after keys were exchanged. clusters
// says whether keys begin with a logical cluster, as kcp's do.
//
// Leases need not be a resource of the server: then it is where they would be stored.
func LeasesOf(stored generic.RESTOptionsGetter, clusters bool) (Leases, error) {
	how, err := stored.GetRESTOptions(coordinationv1.Resource("leases"), nil)
	if err != nil {
		return Leases{}, fmt.Errorf("how the server stores Leases: %w", err)
	}
	transformer := how.StorageConfig.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	prefix := path.Join("/", how.StorageConfig.Prefix, how.ResourcePrefix)
	return Leases{
		Prefix: prefix,
		Key: func(t fence.Token) (string, error) {
			if clusters && t.Cluster == "" {
				return "", errors.New("the token names no logical cluster, and this server stores each Lease in one")
			}
			if !clusters && t.Cluster != "" {
				return "", fmt.Errorf("the token names the logical cluster %q, and this server has none", t.Cluster)
			}
			return path.Join(prefix, t.Cluster.String(), t.Namespace, t.Name), nil
		},
		Term: func(ctx context.Context, kv *mvccpb.KeyValue) (fence.Token, error) {
			data, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
			if err != nil {
				return fence.Token{}, fmt.Errorf("decrypt: %w", err)
			}
			obj, _, err := decoder.Decode(data, nil, nil)
			if err != nil {
				return fence.Token{}, fmt.Errorf("decode: %w", err)
			}
			lease, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return fence.Token{}, fmt.Errorf("it is a %T", obj)
			}
			return fence.OfLease(lease), nil
		},
	}, nil
}

// scheme and decoder know Leases only.
var (
	scheme = func() *runtime.Scheme {
		s := runtime.NewScheme()
		if err := coordinationv1.AddToScheme(s); err != nil {
			panic(err) // the types are upstream's, and none is there before
		}
		return s
	}()
	codecs  = serializer.NewCodecFactory(scheme)
	decoder = codecs.UniversalDeserializer()
)
