package encryption

import (
	"sync"

	upstream "k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var refused = metrics.NewGauge(&metrics.GaugeOpts{
	Name: "regent_encryption_config_refused", StabilityLevel: metrics.ALPHA,
	Help: "1 if the file of --encryption-provider-config cannot be used and the keys loaded before it stay in use, else 0.",
})

var registerMetrics = sync.OnceFunc(func() {
	upstream.RegisterMetrics()
	legacyregistry.MustRegister(refused)
})

// use makes a generation the one in use, and returns the one before. Upstream's metric tells its hash.
func (k *Keys) use(next *generation) (old *generation) {
	if old = k.current.Swap(next); old == nil {
		upstream.RecordEncryptionConfigLastConfigInfo(k.replica, next.hash)
	} else {
		upstream.RecordEncryptionConfigAutomaticReloadSuccess(k.replica, next.hash)
	}
	k.accept()
	return old
}

// accept says that the file is what is used.
func (k *Keys) accept() {
	k.fault.Store(nil)
	refused.Set(0)
}

// reject says why the file is not what is used.
func (k *Keys) reject(err error) {
	if k.fault.Swap(&err) == nil {
		upstream.RecordEncryptionConfigAutomaticReloadFailure(k.replica)
	}
	refused.Set(1)
}
