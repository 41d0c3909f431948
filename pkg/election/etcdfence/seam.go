package etcdfence

import (
	"context"
	"errors"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Each etcd3 store asks this checker, when it is made, what its etcd can do, and gives it the client that it will write
// with. Nobody else sees that client: upstream's factory is private, and decorators of storage get a finished store.
//
// It is replaced before main, because stores read the variable without a lock. Without a guard it does what upstream's
// does.
func init() {
	if tapped, ok := tap(feature.DefaultFeatureSupportChecker, feature.DefaultFeatureSupportChecker.CheckClient); ok {
		feature.DefaultFeatureSupportChecker = tapped
	}
}

// tap returns a checker that sees clients first. The type of a client is private to the feature package, so that it
// cannot be written here. It can be inferred, though, from a method that takes it.
func tap[C any](next feature.FeatureSupportChecker, check func(context.Context, C, storage.Feature)) (feature.FeatureSupportChecker, bool) {
	tapped, ok := any(&tapped[C]{next, check}).(feature.FeatureSupportChecker)
	return tapped, ok
}

type tapped[C any] struct {
	feature.FeatureSupportChecker
	check func(context.Context, C, storage.Feature)
}

// CheckClient implements feature.FeatureSupportChecker.
func (t *tapped[C]) CheckClient(ctx context.Context, c C, what storage.Feature) {
	if client, ok := any(c).(*kubernetes.Client); ok {
		if seen, ok := ctx.Value(probeKey{}).(*atomic.Bool); ok {
			seen.Store(true)
		} else {
			installed.guard(ctx, client)
		}
	}
	t.check(ctx, c, what)
}

// upstream returns the checker that was there before. It is for tests.
func (t *tapped[C]) upstream() feature.FeatureSupportChecker { return t.FeatureSupportChecker }

type probeKey struct{}

// probe makes a store that nobody uses, over a client without an etcd, and returns an error unless its client could
// have been guarded.
func probe(ctx context.Context) error {
	var seen atomic.Bool
	ctx, cancel := context.WithCancel(context.WithValue(ctx, probeKey{}, &seen))
	defer cancel()
	nowhere := &kubernetes.Client{Client: clientv3.NewCtxClient(ctx)}
	newLease := func() runtime.Object { return &coordinationv1.Lease{} }
	codec, versioner := leaseCodec(), storage.APIObjectVersioner{}
	store, err := etcd3.New(nowhere, nil, codec, newLease, func() runtime.Object { return &coordinationv1.LeaseList{} }, "/probe", "/leases",
		coordinationv1.Resource("leases"), identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		return err
	}
	store.Close()
	if !seen.Load() {
		return errors.New("stores of this version of k8s.io/apiserver cannot be guarded: look for a newer version of pkg/election/etcdfence, " +
			"and see whether somebody replaces feature.DefaultFeatureSupportChecker")
	}
	return nil
}
