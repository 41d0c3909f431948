package authentication

import (
	"sync"

	configmetrics "k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var keyFetches = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_issuer_key_fetches_total", StabilityLevel: metrics.ALPHA,
	Help: "How often this replica has asked an issuer of --authentication-config for its keys, by issuer, and result success or failure.",
}, []string{"issuer", "result"})

var registerMetrics = sync.OnceFunc(func() {
	configmetrics.RegisterMetrics()
	legacyregistry.MustRegister(keyFetches)
})
