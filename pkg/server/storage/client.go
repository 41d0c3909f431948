// Package storage keeps the shard's objects in etcd. All resources share one client, whose writes pass the guard. Each
// resource has layers of its own that keep logical clusters apart.
//
// From above these layers are: the epochs of resource versions; finalizers, and what is built in or comes in pairs; the
// router, which puts the request's logical cluster into upstream's keys; the watch cache (not for events); the stamp,
// which writes the cluster into the object; and upstream's etcd3 store over the shared client.
package storage

import (
	"context"
	"crypto/tls"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/regent-project/regent/pkg/election/etcdfence"
)

// The timings with which a lost connection to etcd is noticed and made anew. gRPC sends pings at most every 10 s, and
// etcd by default allows one ping every 5 s. gRPC's own back-off grows to two minutes: a replica would not notice for
// so long that etcd is back.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
	connectTimeout   = 3 * time.Second
	longestReconnect = time.Second
)

// Config says where the shard's etcd is.
type Config struct {
	// Transport has the endpoints and the TLS files.
	Transport storagebackend.TransportConfig
	// Prefix begins all keys of the shard, such as "/registry".
	Prefix string
	// Transformers encrypt what is stored. Nil: it is stored unencrypted.
	Transformers value.ResourceTransformers
	// Uncached: no resource has a watch cache, because nobody reads.
	Uncached bool
	// Meter bounds what is written. Nil: everybody may write.
	Meter Meter
	// IsOwn reports whether the request in a context is the process's own: it does not wait while its logical
	// cluster is frozen. Nil: none is.
	IsOwn func(context.Context) bool
}

// Client is the process's client of the shard's etcd. All resources share it, so that every write passes its guard.
type Client struct {
	config  Config
	etcd    *kubernetes.Client
	calls   *calls
	guard   *etcdfence.Guard
	history *history
	members *members
	tallies *tallies
	aside   aside
	// timeline is filled by FollowRevisions.
	timeline timeline
	// resources has a *storedResource of each schema.GroupResource that has a store.
	resources sync.Map
	// builtIn is nil until ServeBuiltIn. gone are the logical clusters that go. clusterObjects has LogicalClusters.
	builtIn        atomic.Pointer[BuiltIn]
	gone           departures
	clusterObjects atomic.Pointer[clusterObjects]
	pairs          atomic.Pointer[Pairs]  // nil until ServePairs
	epochs         atomic.Pointer[Epochs] // nil until ServeEpochs
	watches        watches
	compactor      interface {
		etcd3.Compactor
		Stop()
	}
}

// NewClient does not wait for etcd. While etcd cannot be reached, calls fail or wait, and the client keeps trying to
// connect. An error means that the configuration is unusable.
func NewClient(config Config) (*Client, error) {
	config.Prefix = path.Join("/", config.Prefix)
	if config.Meter == nil {
		config.Meter = unmetered{}
	}
	if config.IsOwn == nil {
		config.IsOwn = func(context.Context) bool { return false }
	}
	members := newMembers(config.Transport.ServerList)
	etcd, err := open(config.Transport, config.Transport.ServerList, members.options()...)
	if err != nil {
		return nil, err
	}
	past := &history{KV: etcd3.NewETCDLatencyTracker(etcd.KV), over: make(chan struct{})}
	etcd.KV = &tries{KV: past}
	inFlight, guard := newCalls(etcd.Kubernetes, etcd.KV), etcdfence.New()
	past.onWentBack = guard.Forget
	etcd.Kubernetes = &puts{&thawed{guard.Client(inFlight, inFlight), inFlight, etcd.Client, config.Prefix, config.IsOwn}, config.Prefix}
	counting := &tallies{of: map[schema.GroupResource]*tally{}}
	counting.feed(etcd)
	registerMetrics()
	c := &Client{
		config:    config,
		etcd:      etcd,
		calls:     inFlight,
		guard:     guard,
		history:   past,
		members:   members,
		tallies:   counting,
		compactor: etcd3.NewCompactor(etcd.Client, storagebackend.DefaultCompactInterval, clock.RealClock{}, nil),
	}
	counting.before = (&movings{c}).before
	return c, nil
}

// Etcd returns the etcd client for the shard's own records. Writes with it do not pass the guard.
func (c *Client) Etcd() *clientv3.Client { return c.etcd.Client }

// Prefix begins all keys of the shard. It starts with a slash and ends without one.
func (c *Client) Prefix() string { return c.config.Prefix }

// SeenRevision returns the newest revision of etcd that this process has heard of. 0: it has heard of none.
func (c *Client) SeenRevision() int64 { return c.history.revision.Load() }

// Check makes a linearizable read of etcd. Use it for readiness, not for liveness: a restart does not bring etcd back.
func (c *Client) Check(ctx context.Context) error {
	if _, err := c.etcd.Kubernetes.Get(ctx, path.Join(c.config.Prefix, "health"), kubernetes.GetOptions{}); err != nil {
		return fmt.Errorf("etcd at %v does not answer: %w", c.config.Transport.ServerList, err)
	}
	return nil
}

// WatchMembers runs until ctx ends. It keeps calls and watches away from members of etcd that do not serve while others
// do.
func (c *Client) WatchMembers(ctx context.Context) error {
	one := func(endpoint string) (*kubernetes.Client, error) { return open(c.config.Transport, []string{endpoint}) }
	return c.members.watch(ctx, one, path.Join(c.config.Prefix, "health"))
}

// WentBack returns a channel that is closed when etcd turns out to have gone back. Fault then says how.
func (c *Client) WentBack() <-chan struct{} { return c.history.over }

// Fault returns an error that wraps ErrWentBack once etcd has gone back, and nil until then.
func (c *Client) Fault() error {
	select {
	case <-c.history.over:
		return c.history.fault
	default:
		return nil
	}
}

// CheckToken reads the Lease of the token in ctx. It returns an error for which fence.IsFenced holds if the token's
// term is over, and nil if ctx has no token. It is for writes that never reach storage. It promises nothing about other
// writes: each of those is checked in its own transaction.
func (c *Client) CheckToken(ctx context.Context) error { return c.guard.Check(ctx) }

// Close ends the client, and with it every call and watch, and returns when the calls have ended. Stores must be
// destroyed first.
func (c *Client) Close() error {
	c.calls.close()
	c.compactor.Stop()
	if err := c.etcd.Close(); err != nil {
		return fmt.Errorf("closing the etcd client: %w", err)
	}
	return nil
}

func open(config storagebackend.TransportConfig, endpoints []string, options ...grpc.DialOption) (*kubernetes.Client, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("no etcd endpoint: give at least one")
	}
	dialed := clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		DialOptions:          append(instrumentation(config), options...),
		// etcd's client logs each retry, several times a second while etcd is away.
		Logger: zap.NewNop(),
	}
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		files, err := tlsConfig(config)
		if err != nil {
			return nil, fmt.Errorf("the TLS files for etcd are unusable: %w", err)
		}
		dialed.TLS = files
	}
	client, err := kubernetes.New(dialed)
	if err != nil {
		return nil, fmt.Errorf("cannot make an etcd client for %v: %w", endpoints, err)
	}
	return client, nil
}

func tlsConfig(config storagebackend.TransportConfig) (*tls.Config, error) {
	if config.TrustedCAFile != "" {
		// etcd accepts a file without certificates and then trusts no server.
		if _, err := cert.CertsFromFile(config.TrustedCAFile); err != nil {
			return nil, err
		}
	}
	info := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
	return info.ClientConfig()
}

func instrumentation(config storagebackend.TransportConfig) []grpc.DialOption {
	traced := []otelgrpc.Option{otelgrpc.WithPropagators(tracing.Propagators())}
	if config.TracerProvider != nil {
		traced = append(traced, otelgrpc.WithTracerProvider(config.TracerProvider))
	}
	metrics := clientMetrics()
	return []grpc.DialOption{
		// Chained interceptors run behind etcd's own, so that they count each retry.
		grpc.WithChainUnaryInterceptor(metrics.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(metrics.StreamClientInterceptor()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(traced...)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestReconnect},
			MinConnectTimeout: connectTimeout,
		}),
	}
}
