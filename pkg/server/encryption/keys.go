// Package encryption has the keys with which objects are encrypted in etcd, and loads them anew when their file
// changes.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

// Keys encrypts and decrypts as the file says that Load, or Run after it, has loaded last. Make it with Load. All
// methods may be called at any time on any goroutine, Run once.
//
// Upstream has types for this, too. They are not used, because they end the plugins of old keys on a goroutine that
// sleeps and that nobody waits for, and because they try a faulty file again, and log it, for as long as it is there.
type Keys struct {
	file, replica string
	times         times

	current atomic.Pointer[generation]
	// fault says why the file is not what is used. Nil: it is.
	fault atomic.Pointer[error]
	// plugins ends with Close. Connections to KMS plugins live in it.
	plugins context.Context
	end     context.CancelFunc
}

// generation is what one content of the file says. Its connections to KMS plugins end with end.
type generation struct {
	transformers encryptionconfig.StaticTransformers
	plugins      healthz.HealthChecker
	hash         string
	grace        time.Duration
	end          context.CancelFunc
}

// Load reads an EncryptionConfiguration (apiserver.config.k8s.io/v1). replica names this process in metrics. Call Close
// when nothing is stored any more. Upstream's goroutines that look after KMS plugins end soon after: it offers no way
// to wait for them.
func Load(ctx context.Context, file, replica string) (*Keys, error) {
	registerMetrics()
	k := &Keys{file: file, replica: replica, times: defaultTimes}
	k.plugins, k.end = context.WithCancel(context.WithoutCancel(ctx))
	first, err := k.load() //nolint:contextcheck // plugins live as long as the keys
	if err != nil {
		k.end()
		return nil, err
	}
	k.use(first)
	return k, nil
}

// load reads the file.
func (k *Keys) load() (*generation, error) {
	ctx, end := context.WithCancel(k.plugins)
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, k.file, true, k.replica)
	if err == nil && len(config.HealthChecks) != 1 {
		err = errors.New("upstream's health checks of KMS plugins are not one")
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("--encryption-provider-config: cannot use %s: %w", k.file, err)
	}
	return &generation{
		transformers: config.Transformers, plugins: config.HealthChecks[0],
		hash: config.EncryptionFileContentHash, grace: config.KMSCloseGracePeriod, end: end,
	}, nil
}

// TransformerForResource implements value.ResourceTransformers. Each call of the transformer uses the keys of that
// moment.
func (k *Keys) TransformerForResource(resource schema.GroupResource) value.Transformer {
	return &transformer{keys: k, resource: resource}
}

// Plugins returns the health check of the KMS plugins in use.
func (k *Keys) Plugins() healthz.HealthChecker { return plugins{k} }

type plugins struct{ keys *Keys }

func (p plugins) Name() string                  { return p.keys.current.Load().plugins.Name() }
func (p plugins) Check(req *http.Request) error { return p.keys.current.Load().plugins.Check(req) }

// Fault says why what is in the file is not what is used. It is nil if it is used.
func (k *Keys) Fault() error {
	if fault := k.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// ServeHTTP answers whether the file is in use. It is a check of its own, and not part of /readyz: with a faulty file a
// replica serves as before, and one mistake in a file that all replicas share would take all of them out of service.
func (k *Keys) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := k.Fault(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Close ends the connections to KMS plugins.
func (k *Keys) Close() { k.end() }

var (
	_ value.ResourceTransformers = (*Keys)(nil)
	_ http.Handler               = (*Keys)(nil)
)
